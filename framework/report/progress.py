"""Progress on a terminal by rich: a bar for what goes on, a line for what is done. No torch."""

import sys
from typing import TYPE_CHECKING, Protocol, TextIO

from framework.report.console import make_safe
from framework.report.lines import LEVELS, PlainLines, describe, level_of
from framework.report.phrases import MAX_PROMPT
from framework.report.status import Status, format_rate
from framework.runtime import events

if TYPE_CHECKING:
    from rich.console import Console
    from rich.progress import Progress, TaskID


class ProgressSink(Protocol):
    """A sink that may hold the terminal; `close` gives it back and may be called twice."""

    def __call__(self, event: events.Event) -> None: ...

    def close(self) -> None: ...


class PipedProgress(PlainLines):
    """Plain lines with shortened prompts, for standard output in a pipe or a file."""

    def __init__(self, stream: TextIO, level: str = "info", planned_bytes: int | None = None) -> None:
        super().__init__(stream, prompt_limit=MAX_PROMPT, level=level, planned_bytes=planned_bytes)

    def close(self) -> None:
        """Nothing is held; the stream belongs to the caller."""


class NotebookProgress(PlainLines):
    """Lines for a notebook's cell, where the running step's line is written over itself as `tqdm` does."""

    def __init__(self, stream: TextIO, level: str = "info", planned_bytes: int | None = None) -> None:
        super().__init__(stream, prompt_limit=MAX_PROMPT, step_interval_s=0.1, level=level, planned_bytes=planned_bytes)
        self._width = 0

    def __call__(self, event: events.Event) -> None:
        self._over = isinstance(event, events.StepDone) and event.step < event.num_steps
        super().__call__(event)

    def write(self, text: str) -> None:
        """Write over the line of the step before, and leave only the last one standing."""
        if self._stream is None:
            return
        line = f"{self._clock() - self._start:8.2f} s  {text}"
        self._stream.write("\r" + line.ljust(self._width) + ("" if self._over else "\n"))
        self._stream.flush()
        self._width = len(line) if self._over else 0

    def close(self) -> None:
        """Nothing is held."""


class TerminalProgress:
    """Shows loading and stages as they go: steps, rate, elapsed and remaining time, and below where it is."""

    def __init__(self, console: "Console", level: str = "info", planned_bytes: int | None = None) -> None:
        self._console = console
        self._status, self._least = Status(planned_bytes), LEVELS.index(level)
        self._progress: Progress | None = None
        self._task: TaskID | None = None

    def __call__(self, event: events.Event) -> None:
        self._status(event)
        match event:
            case events.RunStarted():
                self._progress = _start(self._console)
                self._print(event)
            case events.ComponentLoading():
                self._show(describe(event) or "", None)
            case events.StageStarted():
                self._show(event.stage, None)
            case events.StepDone():
                self._step(event)
            case events.MemorySampled():
                self._tell_place()
            case events.ComponentLoaded() | events.StageFinished():
                self._hide()
                self._print(event)
            case events.RunFinished():
                self.close()
                self._print(event)
            case _:
                self._print(event)

    def close(self) -> None:
        """Remove the bar and give the terminal back."""
        self._hide()
        if self._progress is not None:
            self._progress.stop()
            self._progress = None

    def _print(self, event: events.Event) -> None:
        line = describe(event, MAX_PROMPT)
        if line is not None and LEVELS.index(level_of(event)) >= self._least:
            self._console.print(line)

    def _show(self, description: str, total: int | None) -> None:
        self._hide()
        if self._progress is not None:
            self._task = self._progress.add_task(description, total=total, place=self._status.place())

    def _step(self, event: events.StepDone) -> None:
        if self._progress is not None and self._task is not None:
            self._progress.update(self._task, completed=event.step, total=event.num_steps)
            self._tell_place()

    def _tell_place(self) -> None:
        if self._progress is not None and self._task is not None:
            self._progress.update(self._task, place=self._status.place())

    def _hide(self) -> None:
        if self._progress is not None and self._task is not None:
            self._progress.remove_task(self._task)
        self._task = None


def find_progress(stream: TextIO, level: str = "info", planned_bytes: int | None = None) -> ProgressSink:
    """Return bars for a terminal, one moving line in a notebook and plain lines for anything else.

    The stream is made safe for any text; `level` as in `log.level`; `planned_bytes` is the device peak of a plan.
    """
    make_safe(stream)
    if not stream.isatty():
        kind = NotebookProgress if "ipykernel" in sys.modules else PipedProgress
        return kind(stream, level, planned_bytes)
    from rich.console import Console

    console = Console(file=stream, markup=False, emoji=False, highlight=False, soft_wrap=True)
    if console.is_terminal and not console.is_dumb_terminal:
        return TerminalProgress(console, level, planned_bytes)
    return PipedProgress(stream, level, planned_bytes)


def _start(console: "Console") -> "Progress":
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        ProgressColumn,
        Task,
        TextColumn,
        TimeElapsedColumn,
        TimeRemainingColumn,
    )
    from rich.text import Text

    class Rate(ProgressColumn):
        """Steps a second, or seconds a step where they are slow."""

        def render(self, task: Task) -> Text:
            return Text(format_rate(task.speed))

    progress = Progress(
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        MofNCompleteColumn(),
        Rate(),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
        TextColumn("{task.fields[place]}", markup=False, style="dim"),
        console=console,
        transient=True,
    )
    progress.start()
    return progress
