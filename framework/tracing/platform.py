"""A platform that tells a tracer of copies and waits; everything else goes through untouched. Imports torch.

The engine has no hook of its own for traces: a run that is not traced has the platform itself.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Protocol

from framework.platforms.protocol import EventHandle, Platform, StreamHandle

if TYPE_CHECKING:
    from torch import Tensor

    from framework.tracing.clocks import TraceClock


class Listener(Protocol):
    """Hears of copies and waits. What `before_copy` and `before_wait` return is given back after it."""

    @property
    def clock(self) -> "TraceClock": ...
    def mark(self, labels: Mapping[str, Any]) -> None: ...
    def before_copy(self, stream: StreamHandle) -> Any: ...
    def after_copy(self, stream: StreamHandle, before: Any, dst: "Tensor", src: "Tensor") -> None: ...
    def recorded(self, event: EventHandle, stream: StreamHandle) -> None: ...
    def before_wait(self, stream: StreamHandle, event: EventHandle) -> Any: ...
    def after_wait(self, stream: StreamHandle, cause: Any) -> None: ...
    def host_waited(self, started_s: float) -> None: ...


class TracedPlatform:
    """`inner` with its copies and waits told to `tracer`; None: to nobody, for weights that outlive a trace."""

    def __init__(self, inner: Platform, tracer: Listener | None) -> None:
        self.inner, self.tracer = inner, tracer
        self.kind, self.device = inner.kind, inner.device
        self.overlaps, self.pins, self.unified = inner.overlaps, inner.pins, inner.unified

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)

    def make_stream(self, name: str) -> StreamHandle:
        return self.inner.make_stream(name)

    def current_stream(self) -> StreamHandle:
        return self.inner.current_stream()

    def mark(self, **labels: str | int | None) -> None:
        if self.tracer is not None:
            self.tracer.mark(labels)
        self.inner.mark(**labels)

    def copy_async(self, dst: "Tensor", src: "Tensor", stream: StreamHandle) -> None:
        tracer = self.tracer
        if tracer is None:
            return self.inner.copy_async(dst, src, stream)
        before = tracer.before_copy(stream)
        self.inner.copy_async(dst, src, stream)
        tracer.after_copy(stream, before, dst, src)

    def record_event(self, stream: StreamHandle) -> EventHandle:
        event = self.inner.record_event(stream)
        if self.tracer is not None and self.overlaps:
            self.tracer.recorded(event, stream)
        return event

    def wait_event(self, stream: StreamHandle, event: EventHandle) -> None:
        tracer = self.tracer
        if tracer is None or not self.overlaps:
            return self.inner.wait_event(stream, event)
        waiting = tracer.before_wait(stream, event)
        self.inner.wait_event(stream, event)
        tracer.after_wait(stream, waiting)

    def synchronize(self, target: StreamHandle | EventHandle | None = None) -> None:
        tracer = self.tracer
        if tracer is None:
            return self.inner.synchronize(target)
        started_s = tracer.clock.host_s()
        self.inner.synchronize(target)
        tracer.host_waited(started_s)

    def __repr__(self) -> str:
        return f"traced {self.inner!r}"

    # What the protocol names and a class must have to be seen as one.

    def allocate_pinned(self, size_bytes: int) -> "Tensor | None":
        return self.inner.allocate_pinned(size_bytes)

    def reserve(self, size_bytes: int) -> "Tensor":
        return self.inner.reserve(size_bytes)

    def retire(self, memory: "Tensor") -> None:
        self.inner.retire(memory)

    def memory(self) -> Any:
        return self.inner.memory()

    def cap(self, size_bytes: int | None) -> None:
        self.inner.cap(size_bytes)

    def reset_peak(self) -> None:
        self.inner.reset_peak()

    def release_cache(self) -> None:
        self.inner.release_cache()

    def make_generator(self, seed: int) -> Any:
        return self.inner.make_generator(seed)
