"""Shows a sweep while it runs: a live table on a terminal, a line for each job anywhere else. No torch."""

import time
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, TextIO

from framework.report.console import make_safe
from framework.report.phrases import format_seconds
from framework.sweep.compose_jobs import values_shown
from framework.sweep.job import Job
from framework.sweep.results import counts
from framework.sweep.state import DONE, PENDING, RUNNING, State

if TYPE_CHECKING:
    from rich.console import Console, RenderableType

MAX_ROWS = 30


def job_line(job: Job, state: State, again: bool = False) -> str:
    """`job 7 done on cuda:1, 12.3 s: seed=3 residency=minimal`, with the reason where it is not done."""
    values = " ".join(f"{key}={text}" for key, text in values_shown(job.values).items())
    took = "" if state.seconds is None else f", {format_seconds(state.seconds)}"
    device = f" on {state.device}" if state.device else ""
    reason = f": {state.error}" if state.error else ""
    retry = "; it is tried again" if again else ""
    return f"job {job.number} {state.status}{device}{took}{f' ({values})' if values else ''}{reason}{retry}"


class Lines:
    """One line when a job ends, for a pipe or a file."""

    def __init__(self, stream: TextIO, num_jobs: int) -> None:
        self._stream, self._num_jobs, self._num_ended = make_safe(stream), num_jobs, 0

    def started(self, job: Job, state: State) -> None:
        """The line comes when it ends."""

    def moved(self, job: Job, where: str) -> None:
        """Steps are in the job's own log."""

    def ended(self, job: Job, state: State, again: bool) -> None:
        self._num_ended += not again
        print(f"[{self._num_ended}/{self._num_jobs}] {job_line(job, state, again)}", file=self._stream, flush=True)

    def tick(self) -> None:
        """Nothing is drawn."""

    def close(self) -> None:
        """Nothing is held."""


class Quiet(Lines):
    """Only what went wrong."""

    def ended(self, job: Job, state: State, again: bool) -> None:
        if state.status != DONE:
            super().ended(job, state, again)


class Table:
    """A table that is drawn anew: running jobs first, then those that ended last."""

    def __init__(
        self,
        console: "Console",
        jobs: Sequence[Job],
        states: Mapping[str, State],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        from rich.live import Live

        self._console, self._jobs, self._states, self._clock = console, jobs, states, clock
        self._places: dict[str, str] = {}
        self._since: dict[str, float] = {}
        self._ended: list[str] = []
        self._began = clock()
        self._live = Live(console=console, auto_refresh=False, transient=True)
        self._live.start()

    def started(self, job: Job, state: State) -> None:
        self._since[job.name] = self._clock()
        self._places[job.name] = "starting"

    def moved(self, job: Job, where: str) -> None:
        self._places[job.name] = where

    def ended(self, job: Job, state: State, again: bool) -> None:
        self._places.pop(job.name, None)
        if not again:
            self._ended.append(job.name)
        if state.status != DONE:
            self._console.print(job_line(job, state, again))

    def tick(self) -> None:
        self._live.update(self.render(), refresh=True)

    def close(self) -> None:
        self._live.stop()

    def render(self) -> "RenderableType":
        """The table as it is now."""
        from rich.console import Group
        from rich.table import Table as RichTable
        from rich.text import Text

        keys = list(dict.fromkeys(key for job in self._jobs for key in job.values))
        table = RichTable(box=None, pad_edge=False)
        for name in ("job", "state", "device", "time", *keys):
            table.add_column(Text(name), overflow="ellipsis", no_wrap=True)
        for job in self._rows():
            state, shown = self._states[job.name], values_shown(job.values, 28)
            cells = [str(job.number), self._places.get(job.name, state.status), state.device, self._time(job, state)]
            table.add_row(*(Text(cell) for cell in (*cells, *(shown.get(key, "") for key in keys))))
        return Group(table, Text(self._footer()))

    def _rows(self) -> list[Job]:
        known = {job.name: job for job in self._jobs}
        running = [job for job in self._jobs if job.name in self._places]
        ended = [known[name] for name in reversed(self._ended)][: max(0, MAX_ROWS - len(running))]
        return [*running, *ended]

    def _time(self, job: Job, state: State) -> str:
        if state.status == RUNNING:
            return format_seconds(self._clock() - self._since.get(job.name, self._clock()))
        return "" if state.seconds is None else format_seconds(state.seconds)

    def _footer(self) -> str:
        left = sum(self._states[job.name].status in (PENDING, RUNNING) for job in self._jobs)
        took = self._clock() - self._began
        ended = len(self._ended)
        remaining = f", about {format_seconds(took / ended * left)} left" if ended and left else ""
        return f"{counts([self._states[job.name] for job in self._jobs])}; {format_seconds(took)}{remaining}"


def find_watcher(
    stream: TextIO, jobs: Sequence[Job], states: Mapping[str, State], quiet: bool = False
) -> "Lines | Table":
    """Return a table for a terminal, lines for anything else."""
    if quiet:
        return Quiet(stream, len(jobs))
    make_safe(stream)
    if stream.isatty():
        from rich.console import Console

        console = Console(file=stream, markup=False, emoji=False, highlight=False)
        if console.is_terminal and not console.is_dumb_terminal:
            return Table(console, jobs, states)
    return Lines(stream, len(jobs))
