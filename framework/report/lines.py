"""Plain lines for a pipe or a file: one for each event worth reading, steps at a bounded rate. No torch."""

import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import TextIO

from framework.report.phrases import format_bytes, format_seconds, quote
from framework.report.status import Status
from framework.runtime import events

MAX_SEEDS = 8  # in one line; the record has them all
LEVELS = ("debug", "info", "warning", "error")


def level_of(event: events.Event) -> str:
    """Return from which `log.level` on an event is not said any more: debug lines are, at info, not."""
    match event:
        case events.UseStarted() | events.UseFinished() | events.MemoryMeasured() | events.StallMeasured():
            return "debug"
        case events.Note():
            return "warning"
        case events.RunFinished(status=status):
            return "info" if status == "done" else "error"
    return "info"


def describe(event: events.Event, prompt_limit: int | None = None) -> str | None:
    """Return the line for an event, None for one that has none."""
    match event:
        case events.RunStarted():
            return f"run: pipeline {event.pipeline}, {_count(event.num_requests, 'request')}, device {event.device}"
        case events.ComponentLoading():
            return f"loading {event.component}: {event.mode}"
        case events.ComponentLoaded():
            size, took = format_bytes(event.size_bytes), format_seconds(event.seconds)
            return f"loaded {event.component}: {event.mode}, {event.dtype}, {size}, {took}"
        case events.RequestStarted():
            seeds = ", ".join(map(str, event.seeds[:MAX_SEEDS]))
            more = len(event.seeds) - MAX_SEEDS
            seeds += f" and {more} more" if more > 0 else ""
            prompt = quote(event.prompt, prompt_limit)
            return f"request {event.index + 1} of {event.num_requests}: {prompt}, seed {seeds}"
        case events.StageStarted():
            return f"stage {event.index + 1} of {event.num_stages}: {event.stage}"
        case events.StepDone():
            return f"{event.stage}: step {event.step} of {event.num_steps}"
        case events.StageFinished():
            return f"{event.stage}: done, {format_seconds(event.seconds)}"
        case events.OutputSaved():
            return f"saved {event.path}"
        case events.ArtifactSaved(step=None):
            return f"kept {event.path}, {format_bytes(event.size_bytes)}"
        case events.PreviewSaved():
            return f"preview {event.path}"
        case _ if level_of(event) == "debug":
            return _detail(event)
        case events.RequestFinished():
            return f"request {event.index + 1}: done, {format_seconds(event.seconds)}"
        case events.Note():
            return f"note: {event.text}"
        case events.RunFinished():
            reason = f": {event.error}" if event.error else ""
            return f"run {event.status} after {format_seconds(event.seconds)}{reason}"
    return None


def _detail(event: events.Event) -> str | None:
    """The line of an event that only `log.level=debug` shows."""
    match event:
        case events.UseStarted():
            return f"{event.stage}: use of {_used(event)} began, ready after {format_seconds(event.seconds)}"
        case events.UseFinished():
            return f"{event.stage}: use of {_used(event)} ended after {format_seconds(event.seconds)}"
        case events.StallMeasured():
            return (
                f"{event.stage}: waited {format_seconds(event.stall_s)} of {format_seconds(event.seconds)} for copies"
            )
        case events.MemoryMeasured(device_peak_bytes=peak):
            moved = sum(sum(ways.values()) for ways in event.moved_bytes.values())
            told = "not told" if peak is None else format_bytes(peak)
            return f"request {event.request + 1}: device peak {told}, {format_bytes(moved)} of weights copied"
    return None


def _used(event: events.UseStarted | events.UseFinished) -> str:
    return event.component if event.phase is None else f"{event.component} ({event.phase})"


class PlainLines:
    """A sink that writes one line an event to `stream`, after the seconds since it began.

    Nothing below `level` is written. A step says its pace and where it is. Steps come at most once in
    `step_interval_s` seconds, but for the first and the last of a loop. When the reader of a pipe has gone away, the
    rest is dropped: a run does not fail because nobody listens.
    """

    def __init__(
        self,
        stream: TextIO,
        *,
        prompt_limit: int | None = None,
        step_interval_s: float = 1.0,
        clock: Callable[[], float] = time.monotonic,
        level: str = "info",
        planned_bytes: int | None = None,
    ) -> None:
        self._stream: TextIO | None = stream
        self._prompt_limit, self._step_interval_s, self._clock = prompt_limit, step_interval_s, clock
        self._start = clock()
        self._least = LEVELS.index(level)
        self._status = Status(planned_bytes, clock)
        self._last_step = self._start - step_interval_s

    def __call__(self, event: events.Event) -> None:
        self._status(event)
        if LEVELS.index(level_of(event)) < self._least:
            return
        if isinstance(event, events.StepDone) and not self._is_step_due(event):
            return
        line = describe(event, self._prompt_limit)
        if isinstance(event, events.StepDone):
            line = "; ".join(filter(None, (line, self._status.pace(), self._status.place())))
        if line is not None:
            self.write(line)

    def write(self, text: str) -> None:
        """Write `text` with the time before its first line."""
        if self._stream is None:
            return
        try:
            self._stream.write(f"{self._clock() - self._start:8.2f} s  {text}\n")
            self._stream.flush()
        except BrokenPipeError:
            self._stream = None

    def _is_step_due(self, event: events.StepDone) -> bool:
        now = self._clock()
        if event.step not in (1, event.num_steps) and now - self._last_step < self._step_interval_s:
            return False
        self._last_step = now
        return True


class LogFile(PlainLines):
    """`log.txt` of a run folder: complete, UTF-8 whatever the console's code page, readable while the run goes on."""

    def __init__(
        self, folder: Path, clock: Callable[[], float] = time.monotonic, level: str = "info", more: bool = False
    ) -> None:
        """`more`: go on after the lines of an earlier process."""
        self.path = folder / "log.txt"
        # At the end of the file, wherever that is: what a library prints may go into the same file.
        self._file = open(  # noqa: SIM115 - closed by close()
            self.path,
            "a" if more else "x",
            encoding="utf-8",
            errors="backslashreplace",
            newline="\n",
            opener=_open_to_append,
        )
        super().__init__(self._file, clock=clock, level=level)

    def fileno(self) -> int:
        """The descriptor of the file, for whoever lets a library's own output go into it."""
        return self._file.fileno()

    def close(self) -> None:
        self._stream = None
        self._file.close()


def _open_to_append(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_APPEND, 0o666)


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"
