"""What happens during a run, as typed events; whoever shows, stores or counts them subscribes. No torch.

The scheduler knows no sink: it emits, and an event nobody hears costs one truth test.
"""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field


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
    """One step of a stage's loop; `step` counts from 1."""

    request: int
    stage: str
    step: int
    num_steps: int


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
    request: int
    stage: str
    seconds: float


@dataclass(frozen=True, slots=True)
class OutputSaved:
    """A file of the run folder; `frames_sha256` is the hash of the frame tensor it was made from, if any."""

    request: int
    path: str
    sha256: str
    frames_sha256: str | None = None


@dataclass(frozen=True, slots=True)
class MemoryMeasured:
    """What a request took of the device, told before its end.

    `moved_bytes` are weights copied during it, by component and direction (`h2d`, `d2h`); `device_peak_bytes` is None
    where the platform cannot tell. `loose_bytes` is what components keep on the device beside their weights after it.
    """

    request: int
    device_peak_bytes: int | None
    moved_bytes: Mapping[str, Mapping[str, int]]
    loose_bytes: Mapping[str, int] = field(default_factory=dict)


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
    | MemoryMeasured
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
