"""Holds a run against its plan: what was expected beside what was measured, stage by stage. No torch."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from framework.planning.facts import StageForecast
from framework.planning.footprint import resident_bytes
from framework.planning.plan import Plan
from framework.planning.plan_data import gigabytes
from framework.planning.problem import RESIDENT
from framework.runtime.events import (
    Event,
    EventBus,
    MemoryMeasured,
    Note,
    PlanChecked,
    RequestFinished,
    StageFinished,
)

GAP = 0.1
PASSING = ("activations", "values between calls", "kept by the stage")
LEAST_S, LEAST_BYTES = 0.05, 10**6
"""Below these a difference is noise, whatever its share."""


@dataclass(slots=True)
class Expectations:
    """A sink that tells where the first request was not as planned, and after the last one what could have stayed."""

    plan: Plan
    num_requests: int
    events: EventBus
    _stages: dict[str, StageFinished] = field(default_factory=dict)
    _peak_bytes: int = 0
    _offloaded: Mapping[str, int] = field(default_factory=dict)

    def __call__(self, event: Event) -> None:
        if isinstance(event, StageFinished):
            self._stages[event.stage] = event
            self._peak_bytes = max(self._peak_bytes, event.device_peak_bytes or 0)
        elif isinstance(event, MemoryMeasured):
            self._offloaded = event.offloaded_bytes
        elif isinstance(event, RequestFinished):
            self._check(event.index)

    def _check(self, request: int) -> None:
        compared = {stage.stage: self._compare(stage) for stage in self.plan.forecast.stages}
        self.events.emit(PlanChecked(request, compared))
        lines = list(self._gaps(compared)) if request == 0 else []  # later ones find embeddings and weights in place
        if request == self.num_requests - 1:
            lines += self._could_have_stayed()
        for line in lines:
            self.events.emit(Note(line))
        self._stages.clear()

    def _compare(self, stage: StageForecast) -> dict[str, float | None]:
        found = self._stages.get(stage.stage)
        own = None if found is None else found.seconds if found.device_seconds is None else found.device_seconds
        return {
            "expected_s": stage.seconds,
            "measured_s": own,
            "expected_peak_bytes": stage.peak_bytes,
            "measured_peak_bytes": None if found is None else found.device_peak_bytes,
        }

    def _gaps(self, compared: Mapping[str, Mapping[str, float | None]]) -> Iterator[str]:
        """A line for each stage that is off by more than a tenth, with the part that may explain it."""
        for stage in self.plan.forecast.stages:
            own = compared[stage.stage]
            seconds, peak = own["measured_s"], own["measured_peak_bytes"]
            if seconds is not None and _differ(seconds, stage.seconds, LEAST_S):
                yield (
                    f"{stage.stage} took {seconds:.2f} s and {stage.seconds:.2f} s were expected "
                    f"({_share(seconds, stage.seconds)}): it is bound by {stage.bound_by}, whose rate may be another"
                )
            if peak is not None and _differ(peak, stage.peak_bytes, LEAST_BYTES):
                part = max(_passing(stage.peak_parts).items(), key=lambda one: one[1], default=("activations", 0))
                yield (
                    f"{stage.stage} took {gigabytes(peak)} of device memory and {gigabytes(stage.peak_bytes)} were "
                    f"expected ({_share(peak, stage.peak_bytes)}): weights are as planned, so it is {part[0]} "
                    f"({gigabytes(part[1])} expected)"
                )

    def _could_have_stayed(self) -> Iterator[str]:
        """Name components that moved although there was room for them at the measured peak, small ones first.

        Sizes are the plan's; of components that the plan does not know or that came in the run, what was found there.
        """
        problem = self.plan.problem
        if not self._peak_bytes or problem.hardware.unified:
            return
        spare = problem.device_bytes - self._peak_bytes
        planned = [name for name in problem.known if self.plan.choices[name].mode != RESIDENT]
        found = {name: size for name, size in self._offloaded.items() if name not in problem.known}
        sizes = {name: resident_bytes(problem.components[name]) for name in planned} | found
        for name, size in sorted(sizes.items(), key=lambda one: one[1]):
            if size <= spare:
                spare -= size
                yield (
                    f"{name} ({gigabytes(size)}) could have stayed on the device: {gigabytes(spare + size)} were free "
                    f"at the measured peak; component_residency.{name}=resident"
                )


def _passing(parts: Mapping[str, int]) -> dict[str, int]:
    """The parts of a peak that are no weights."""
    return {name: parts[name] for name in PASSING if name in parts}


def _differ(measured: float, expected: float, least: float) -> bool:
    return abs(measured - expected) > max(least, GAP * max(measured, expected))


def _share(measured: float, expected: float) -> str:
    return f"{100 * (measured / expected - 1):+.0f} %" if expected else "none expected"
