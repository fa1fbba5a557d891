"""How a trace tells time on each kind of device: virtual on sim, events on cuda, the host's clock elsewhere.

A stamp is opaque until `read` gives its time in seconds since the trace began; None while the device is not there yet.
Imports torch for cuda only, inside functions.
"""

import time
from collections.abc import Sequence
from typing import Any, Protocol

from framework.platforms.protocol import Platform, StreamHandle
from framework.tracing.spans import Interval

Stamp = Any


class TraceClock(Protocol):
    """`virtual`: times are those of the simulated machine, exact."""

    virtual: bool

    def stamp(self, stream: StreamHandle) -> Stamp:
        """Mark the end of what is on `stream` now; the host does not wait."""

    def read_end(self, stamp: Stamp) -> float | None:
        """When the work before the stamp was done."""

    def read_start(self, stamp: Stamp) -> float | None:
        """When work after the stamp could begin."""

    def host_s(self) -> float:
        """The host's time now, on the same axis."""

    def kernels(self) -> Sequence[Interval] | None:
        """When the device computed, where that is known kernel by kernel."""


class HostClock:
    """For devices whose calls are done when they return."""

    virtual = False

    def __init__(self) -> None:
        self._zero = time.perf_counter()

    def stamp(self, stream: StreamHandle) -> Stamp:
        return time.perf_counter() - self._zero

    def read_end(self, stamp: Stamp) -> float | None:
        return float(stamp)

    read_start = read_end

    def host_s(self) -> float:
        return time.perf_counter() - self._zero

    def kernels(self) -> None:
        return None


class SimClock:
    """Virtual seconds. A stamp is (end of the stream's work, the host's time): work starts after both."""

    virtual = True

    def __init__(self, world: Any) -> None:
        self._world = world
        self._zero: float = max(
            [world.host_s, *(stream.time_s for device in world.devices for stream in device.streams)]
        )
        self._kernels: list[Interval] = []
        world.on_kernel = self._add_kernel

    def stamp(self, stream: StreamHandle) -> Stamp:
        return (stream.time_s - self._zero, self._world.host_s - self._zero)

    def read_end(self, stamp: Stamp) -> float | None:
        return max(0.0, float(stamp[0]))

    def read_start(self, stamp: Stamp) -> float | None:
        return max(0.0, float(stamp[0]), float(stamp[1]))

    def host_s(self) -> float:
        return float(self._world.host_s - self._zero)

    def kernels(self) -> Sequence[Interval]:
        return self._kernels

    def since_start(self, time_s: float) -> float:
        """Return a time of the world on the trace's axis."""
        return time_s - self._zero

    def stop(self) -> None:
        self._world.on_kernel = None

    def _add_kernel(self, start_s: float, end_s: float) -> None:
        start, end = start_s - self._zero, end_s - self._zero
        if self._kernels and start <= self._kernels[-1][1]:
            self._kernels[-1] = (self._kernels[-1][0], max(end, self._kernels[-1][1]))
        else:
            self._kernels.append((start, end))


class CudaClock:
    """Events on the streams, read once they are done: nothing waits for them."""

    virtual = False

    def __init__(self, device: Any) -> None:
        import torch

        self._event = torch.cuda.Event
        with torch.cuda.device(device):
            self._first = self._event(enable_timing=True)  # type: ignore[no-untyped-call]
            self._first.record()
            self._first.synchronize()  # before the run: both clocks start here
        self._zero = time.perf_counter()

    def stamp(self, stream: StreamHandle) -> Stamp:
        event = self._event(enable_timing=True)  # type: ignore[no-untyped-call]
        event.record(stream)
        return event

    def read_end(self, stamp: Stamp) -> float | None:
        return float(self._first.elapsed_time(stamp)) / 1e3 if stamp.query() else None

    read_start = read_end

    def host_s(self) -> float:
        return time.perf_counter() - self._zero

    def kernels(self) -> None:
        return None


def make_clock(platform: Platform) -> TraceClock:
    """Return the clock of a platform; one that only its own kind has goes by the host's."""
    if platform.kind == "sim":
        return SimClock(platform.world)  # type: ignore[attr-defined]
    if platform.kind == "cuda":
        return CudaClock(platform.device)
    return HostClock()
