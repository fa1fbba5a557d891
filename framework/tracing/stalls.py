"""How much of a run that is not traced compute waits for copies: two stamps around each wait. Imports torch.

Told after every step, from stamps that the device has reached: nothing waits for them.
"""

from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Any

from framework.platforms.protocol import EventHandle, Platform, StreamHandle
from framework.runtime import events
from framework.tracing.clocks import HostClock, SimClock, Stamp, TraceClock, make_clock
from framework.tracing.platform import TracedPlatform

if TYPE_CHECKING:
    from torch import Tensor, nn

MAX_EVENTS = 256  # that may still be waited for


class StallMeter:
    """A sink that also watches a platform: subscribe it, give it to `execute`, and `finish` it after the run."""

    def __init__(self, bus: events.EventBus) -> None:
        self._bus = bus
        self.clock: TraceClock = HostClock()  # until the platform is known
        self._traced: TracedPlatform | None = None
        self._compute: StreamHandle = None
        self._copied: dict[int, EventHandle] = {}
        self._waits: list[tuple[Stamp, Stamp]] = []
        self._reached: Stamp | None = None  # where the last measurement ended

    def watch(self, platform: Platform) -> Platform:
        """Return `platform` as it is to be used; itself where copies are done when they return."""
        if not platform.overlaps:
            return platform
        self._compute, self.clock = platform.current_stream(), make_clock(platform)
        if isinstance(self.clock, SimClock):
            self.clock.stop()  # kernels are not looked at
        self._traced = TracedPlatform(platform, self)
        return self._traced

    def layers(
        self, modules: "Mapping[str, nn.Module]", paths: Mapping[str, tuple[str, ...]], compiled: bool = False
    ) -> AbstractContextManager[None]:
        return nullcontext()

    def finish(self) -> None:
        """Let go of the platform, which may outlive the run."""
        if self._traced is not None:
            self._traced.tracer = None
        self._traced, self._waits, self._copied = None, [], {}

    # What the platform tells

    def mark(self, labels: Mapping[str, Any]) -> None:
        """What copies are for does not matter here."""

    def before_copy(self, stream: StreamHandle) -> None:
        """Copies are not timed."""

    def after_copy(self, stream: StreamHandle, before: Any, dst: "Tensor", src: "Tensor") -> None:
        """Copies are not timed."""

    def recorded(self, event: EventHandle, stream: StreamHandle) -> None:
        if stream is not self._compute and stream != self._compute:
            self._copied[id(event)] = event
            if len(self._copied) > MAX_EVENTS:
                del self._copied[next(iter(self._copied))]

    def before_wait(self, stream: StreamHandle, event: EventHandle) -> Stamp | None:
        waits = id(event) in self._copied and stream == self._compute and self._reached is not None
        return self.clock.stamp(self._compute) if waits else None

    def after_wait(self, stream: StreamHandle, cause: Stamp | None) -> None:
        if cause is not None:
            self._waits.append((cause, self.clock.stamp(self._compute)))

    def host_waited(self, started_s: float) -> None:
        """The host's own waits are no stalls of compute."""

    # What the run tells

    def __call__(self, event: events.Event) -> None:
        if self._traced is None:
            return
        match event:
            case events.StageStarted():
                self._reached = self.clock.stamp(self._compute)
                self._waits.clear()
            case events.StepDone() | events.StageFinished():
                self._tell(event)

    def _tell(self, event: "events.StepDone | events.StageFinished") -> None:
        """Tell of the time since the last measurement; a device that is not there yet is told of the next time."""
        now = self.clock.stamp(self._compute)
        start = self.clock.read_end(self._reached) if self._reached is not None else None
        end = self.clock.read_end(now)
        spans = [(self.clock.read_start(one), self.clock.read_end(other)) for one, other in self._waits]
        known = [max(0.0, other - one) for one, other in spans if one is not None and other is not None]
        if start is None or end is None or len(known) < len(spans):
            return
        self._reached = now
        self._waits.clear()
        if end > start:
            self._bus.emit(events.StallMeasured(event.request, event.stage, end - start, min(sum(known), end - start)))
