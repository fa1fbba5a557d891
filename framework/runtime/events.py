"""What happens during a run, as typed events; whoever shows, stores or counts them subscribes. No torch.

The scheduler knows no sink: it emits, and an event nobody hears costs one truth test.
"""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True)
class RunStarted:
    pipeline: str
    num_requests: int
    device: str


@dataclass(frozen=True, slots=True)
class ComponentLoading:
    component: str
    mode: str


@dataclass(frozen=True, slots=True)
class ComponentLoaded:
    component: str
    mode: str
    dtype: str
    size_bytes: int
    seconds: float


@dataclass(frozen=True, slots=True)
class RequestStarted:
    index: int
    num_requests: int
    prompt: str
    seeds: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class StageStarted:
    request: int
    stage: str
    kind: str
    index: int
    num_stages: int


@dataclass(frozen=True, slots=True)
class StepDone:
    """One step of a stage's loop; `step` counts from 1. `values` are its latents, to look at and not to keep."""

    request: int
    stage: str
    step: int
    num_steps: int
    values: Any = field(default=None, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class UseStarted:
    """A component becomes needed; `seconds` is what preparing it took on the host."""

    request: int
    stage: str
    component: str
    phase: str | None
    seconds: float


@dataclass(frozen=True, slots=True)
class UseFinished:
    request: int
    stage: str
    component: str
    phase: str | None
    seconds: float


@dataclass(frozen=True, slots=True)
class StageFinished:
    """`device_peak_bytes` is None where host and device are one; `device_seconds` is a simulated device's own time.

    `values` are what the stage wrote, by name, to look at while this is told: they are gone afterwards.
    """

    request: int
    stage: str
    seconds: float
    device_peak_bytes: int | None = None
    device_seconds: float | None = None
    values: Any = field(default=None, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class OutputSaved:
    """A file of the run folder; `frames_sha256` is the hash of the frame tensor it was made from, if any."""

    request: int
    path: str
    sha256: str
    frames_sha256: str | None = None


@dataclass(frozen=True, slots=True)
class ArtifactSaved:
    """What a stage wrote, or the state of its loop after `step`, lies in a file of the run folder."""

    request: int
    stage: str
    step: int | None
    path: str
    sha256: str
    size_bytes: int


@dataclass(frozen=True, slots=True)
class ArtifactDropped:
    """A file that nobody would continue from is gone."""

    request: int
    path: str


@dataclass(frozen=True, slots=True)
class PlanMade:
    """What is expected of the run, as plain data; `placements` are what it goes by, plain as well."""

    plan: Mapping[str, Any]
    placements: tuple[Mapping[str, Any], ...]


@dataclass(frozen=True, slots=True)
class PlanChecked:
    """By stage, what was expected and what was measured: seconds and peak bytes of the device."""

    request: int
    stages: Mapping[str, Mapping[str, float | None]]


@dataclass(frozen=True, slots=True)
class MemoryMeasured:
    """What a request took of the device, told before its end.

    `moved_bytes` are weights copied during it, by component and direction (`h2d`, `d2h`); `device_peak_bytes` is None
    where the platform cannot tell. `loose_bytes` is what components keep on the device beside their weights after it,
    `offloaded_bytes` the weights of those that are not resident, whether they were known before the run or came in it.
    """

    request: int
    device_peak_bytes: int | None
    moved_bytes: Mapping[str, Mapping[str, int]]
    loose_bytes: Mapping[str, int] = field(default_factory=dict)
    offloaded_bytes: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class MemorySampled:
    """Memory at the end of a step, or where a use begins or ends; None where the system does not tell.

    `device_bytes` of `capacity_bytes` are held by tensors; `host_bytes` is what the process has in RAM; `weights` are
    device bytes by component (on the CPU: bytes).
    """

    request: int
    device_bytes: int | None
    capacity_bytes: int | None
    host_bytes: int | None
    weights: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class PreviewSaved:
    """A picture from inside the loop."""

    request: int
    step: int
    path: str


@dataclass(frozen=True, slots=True)
class StallMeasured:
    """Of `seconds` of a stage, compute waited `stall_s` for copies.

    A trace tells it when the stage ends; without one a run that shows its progress does after every step.
    """

    request: int
    stage: str
    seconds: float
    stall_s: float


@dataclass(frozen=True, slots=True)
class RequestFinished:
    index: int
    seconds: float


@dataclass(frozen=True, slots=True)
class Note:
    """One line for the user: a folding, a fallback, a cache hit, a warning."""

    text: str


@dataclass(frozen=True, slots=True)
class RunFinished:
    """`status` is done, failed, refused or interrupted; `error` one line, or None."""

    status: str
    seconds: float
    error: str | None = None


Event = (
    RunStarted
    | ComponentLoading
    | ComponentLoaded
    | RequestStarted
    | StageStarted
    | StepDone
    | UseStarted
    | UseFinished
    | StageFinished
    | OutputSaved
    | ArtifactSaved
    | ArtifactDropped
    | MemoryMeasured
    | PlanMade
    | PlanChecked
    | MemorySampled
    | PreviewSaved
    | StallMeasured
    | RequestFinished
    | Note
    | RunFinished
)
Sink = Callable[[Event], None]


class EventBus:
    """Delivers each event to every sink, in the order they subscribed."""

    def __init__(self, *sinks: Sink) -> None:
        self._sinks = list(sinks)
        self._muted = False

    def subscribe(self, sink: Sink) -> None:
        self._sinks.append(sink)

    @property
    def heard(self) -> bool:
        """Whether anybody listens now: loops ask before they make an event."""
        return bool(self._sinks) and not self._muted

    def emit(self, event: Event) -> None:
        for sink in () if self._muted else self._sinks:
            sink(event)

    @contextmanager
    def muted(self) -> Iterator[None]:
        """Deliver nothing in the block: what happens there is not part of any request."""
        self._muted = True
        try:
            yield
        finally:
            self._muted = False
