"""Progress on a terminal by rich: a bar for what goes on, a line for what is done. No torch."""

from typing import TYPE_CHECKING, Protocol, TextIO

from framework.report.console import make_safe
from framework.report.lines import PlainLines, describe
from framework.report.phrases import MAX_PROMPT
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

    def __init__(self, stream: TextIO) -> None:
        super().__init__(stream, prompt_limit=MAX_PROMPT)

    def close(self) -> None:
        """Nothing is held; the stream belongs to the caller."""


class TerminalProgress:
    """Shows loading and stages as they go: steps, rate, elapsed and remaining time."""

    def __init__(self, console: "Console") -> None:
        self._console = console
        self._progress: Progress | None = None
        self._task: TaskID | None = None

    def __call__(self, event: events.Event) -> None:
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
        if line is not None:
            self._console.print(line)

    def _show(self, description: str, total: int | None) -> None:
        self._hide()
        if self._progress is not None:
            self._task = self._progress.add_task(description, total=total)

    def _step(self, event: events.StepDone) -> None:
        if self._progress is not None and self._task is not None:
            self._progress.update(self._task, completed=event.step, total=event.num_steps)

    def _hide(self) -> None:
        if self._progress is not None and self._task is not None:
            self._progress.remove_task(self._task)
        self._task = None


def find_progress(stream: TextIO) -> ProgressSink:
    """Return bars for a terminal and plain lines for anything else; the stream is made safe for any text."""
    make_safe(stream)
    if not stream.isatty():
        return PipedProgress(stream)
    from rich.console import Console

    console = Console(file=stream, markup=False, emoji=False, highlight=False, soft_wrap=True)
    return TerminalProgress(console) if console.is_terminal and not console.is_dumb_terminal else PipedProgress(stream)


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
        console=console,
        transient=True,
    )
    progress.start()
    return progress


def format_rate(steps_per_second: float | None) -> str:
    """Return `3.1 steps/s`, or `12.0 s/step` below one a second; empty while unknown."""
    if not steps_per_second:
        return ""
    return f"{steps_per_second:.1f} steps/s" if steps_per_second >= 1 else f"{1 / steps_per_second:.1f} s/step"
