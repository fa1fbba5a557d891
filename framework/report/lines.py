"""Plain lines for a pipe or a file: one for each event worth reading, steps at a bounded rate. No torch."""

import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import TextIO

from framework.report.phrases import format_bytes, format_seconds, quote
from framework.runtime import events

MAX_SEEDS = 8  # in one line; the record has them all


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
        case events.RequestFinished():
            return f"request {event.index + 1}: done, {format_seconds(event.seconds)}"
        case events.Note():
            return f"note: {event.text}"
        case events.RunFinished():
            reason = f": {event.error}" if event.error else ""
            return f"run {event.status} after {format_seconds(event.seconds)}{reason}"
    return None


class PlainLines:
    """A sink that writes one line an event to `stream`, after the seconds since it began.

    Steps come at most once in `step_interval_s` seconds, but for the first and the last of a loop. When the reader of a
    pipe has gone away, the rest is dropped: a run does not fail because nobody listens.
    """

    def __init__(
        self,
        stream: TextIO,
        *,
        prompt_limit: int | None = None,
        step_interval_s: float = 1.0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._stream: TextIO | None = stream
        self._prompt_limit, self._step_interval_s, self._clock = prompt_limit, step_interval_s, clock
        self._start = clock()
        self._last_step = self._start - step_interval_s

    def __call__(self, event: events.Event) -> None:
        if isinstance(event, events.StepDone) and not self._is_step_due(event):
            return
        line = describe(event, self._prompt_limit)
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

    def __init__(self, folder: Path, clock: Callable[[], float] = time.monotonic) -> None:
        self.path = folder / "log.txt"
        # At the end of the file, wherever that is: what a library prints may go into the same file.
        self._file = open(  # noqa: SIM115 - closed by close()
            self.path, "x", encoding="utf-8", errors="backslashreplace", newline="\n", opener=_open_to_append
        )
        super().__init__(self._file, clock=clock)

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
