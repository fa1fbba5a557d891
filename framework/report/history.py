"""What a run's events say over time, kept small: memory, stages and steps, for the report. No torch."""

import time
from collections.abc import Callable
from dataclasses import dataclass

from framework.runtime import events

MAX_SAMPLES = 1500  # then every other one goes


@dataclass(frozen=True, slots=True)
class Moment:
    """Memory at `at_s` seconds from the start."""

    at_s: float
    memory: events.MemorySampled


class History:
    """A sink that keeps what a picture over time needs; `stages` are (name, start, end) in seconds."""

    def __init__(self, clock: Callable[[], float] = time.perf_counter) -> None:
        self._clock, self._start = clock, clock()
        self.moments: list[Moment] = []
        self.stages: list[tuple[str, float, float]] = []
        self.steps: dict[str, list[float]] = {}
        self.previews: list[events.PreviewSaved] = []
        self._stage_start = 0.0
        self._every = self._seen = 1

    def __call__(self, event: events.Event) -> None:
        match event:
            case events.MemorySampled():
                self._keep(event)
            case events.StageStarted():
                self._stage_start = self._now()
            case events.StepDone(stage=stage):
                self.steps.setdefault(stage, []).append(self._now())
            case events.StageFinished(stage=stage):
                self.stages.append((stage, self._stage_start, self._now()))
            case events.PreviewSaved():
                self.previews.append(event)

    def _now(self) -> float:
        return self._clock() - self._start

    def _keep(self, event: events.MemorySampled) -> None:
        self._seen += 1
        if self._seen % self._every:
            return
        self.moments.append(Moment(self._now(), event))
        if len(self.moments) > MAX_SAMPLES:
            self.moments, self._every = self.moments[::2], self._every * 2
