"""The contract between the residency engine and a device: about ten methods. No torch at import.

Everything above this line is one code for every device. A stream and an event are opaque: make them here, give them
back here. Sizes are bytes, times seconds.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias, runtime_checkable

if TYPE_CHECKING:
    import torch

StreamHandle: TypeAlias = Any
EventHandle: TypeAlias = Any


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryFigures:
    """Device memory in bytes.

    `free_bytes` is what can still be had, from the driver's view; `allocated_bytes` is held by live tensors,
    `peak_bytes` its maximum since `reset_peak`; `pinned_bytes` is page-locked host memory made here.
    """

    total_bytes: int
    free_bytes: int
    allocated_bytes: int
    peak_bytes: int
    pinned_bytes: int = 0


@runtime_checkable
class Platform(Protocol):
    """What one device can do.

    `kind` is cuda, mps, cpu, sim or a registered name. `overlaps`: copies run beside kernels on streams of their own;
    where False, every call is done when it returns and streams and events mean nothing. `pins`: page-locked host memory
    exists. `unified`: host and device memory are the same, so moving weights frees nothing.
    """

    kind: str
    overlaps: bool
    pins: bool
    unified: bool
    device: "torch.device"

    def make_stream(self, name: str) -> StreamHandle:
        """Return a new stream; `name` appears in traces."""

    def current_stream(self) -> StreamHandle:
        """Return the stream that kernels are launched on now."""

    def record_event(self, stream: StreamHandle) -> EventHandle:
        """Return an event that is done when everything put on `stream` so far is done."""

    def wait_event(self, stream: StreamHandle, event: EventHandle) -> None:
        """Hold back what is put on `stream` from now on until `event` is done; the host does not wait."""

    def synchronize(self, target: StreamHandle | EventHandle | None = None) -> None:
        """Let the host wait for a stream, an event or (None) the whole device."""

    def allocate_pinned(self, size_bytes: int) -> "torch.Tensor | None":
        """Return page-locked host memory of exactly `size_bytes` as one uint8 tensor, or None where it is refused.

        It is given back with its last view, so keep one until the copies that read it are done.
        """

    def copy_async(self, dst: "torch.Tensor", src: "torch.Tensor", stream: StreamHandle) -> None:
        """Copy `src` into `dst` on `stream`, either way between host and device or on the device.

        Returns at once where the host side is pinned, both are contiguous and their dtypes agree; else when it is done.
        Neither side may be touched before an event recorded after it.
        """

    def reserve(self, size_bytes: int) -> "torch.Tensor":
        """Return device memory as one uint8 tensor, unwritten, aligned to 64 bytes or more.

        Raises `torch.OutOfMemoryError`; release it by dropping every view of it.
        """

    def retire(self, memory: "torch.Tensor") -> None:
        """Declare the contents of `memory` (a view of a reserved buffer) given up: nobody may read before a new write.

        Costs nothing on a real device; `sim` fills NaN and reports every such read.
        """

    def memory(self) -> MemoryFigures:
        """Return this device's figures now."""

    def cap(self, size_bytes: int | None) -> None:
        """Let this process have at most `size_bytes` of the device for tensors, None: all of it again.

        An allocation beyond it raises `torch.OutOfMemoryError`, and `memory` reckons with it.
        """

    def reset_peak(self) -> None:
        """Start a new measurement of `peak_bytes`."""

    def release_cache(self) -> None:
        """Give unused memory that an allocator keeps back to the driver."""

    def make_generator(self, seed: int) -> "torch.Generator":
        """Return a random generator of this device, seeded."""

    def mark(self, **labels: str | int | None) -> None:
        """Say what the next copies are for: any of `stage`, `step`, `component`, `layer`; None takes one away."""
