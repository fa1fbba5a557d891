"""Bytes held: device memory by the granule, page-locked host memory exactly. Imports torch."""

import bisect
import weakref
from collections.abc import Callable

import torch

from framework.platforms.sim.errors import SimOOM
from framework.platforms.sim.streams import Clock

GRANULE_BYTES = 512
"""The CUDA caching allocator's rounding of small blocks."""


def round_up(size_bytes: int) -> int:
    return -(-size_bytes // GRANULE_BYTES) * GRANULE_BYTES


class Ledger:
    """Live and peak bytes of one device against its capacity. Sizes given to it are whole granules.

    `spills`: as with a driver that takes from the host what the device lacks, nothing is refused.
    """

    __slots__ = ("capacity_bytes", "live_bytes", "name", "num_allocations", "peak_bytes", "spills")

    def __init__(self, name: str, capacity_bytes: int) -> None:
        self.name = name
        self.capacity_bytes = capacity_bytes
        self.live_bytes = self.peak_bytes = self.num_allocations = 0
        self.spills = False

    def take(self, size_bytes: int) -> None:
        """Book an allocation; raises `SimOOM` where the capacity does not allow it. No bytes always fit."""
        live = self.live_bytes + size_bytes
        if size_bytes and live > self.capacity_bytes and not self.spills:
            raise SimOOM(
                f"{self.name} is out of memory: tried to allocate {size_bytes} bytes with {self.live_bytes} bytes held "
                f"of {self.capacity_bytes}"
            )
        self.live_bytes = live
        self.num_allocations += 1
        if live > self.peak_bytes:
            self.peak_bytes = live

    def give_back(self, size_bytes: int) -> None:
        self.live_bytes -= size_bytes

    def reset_peak(self) -> None:
        self.peak_bytes = self.live_bytes


class PinnedBuffer:
    """One page-locked range of host memory, with the last copy of each stream that uses it.

    `kept`: it stays locked until its copies are done, as torch's caching host allocator does it; memory that we lock
    ourselves does not.
    """

    __slots__ = ("end", "kept", "size_bytes", "start", "users")

    def __init__(self, start: int, size_bytes: int, kept: bool) -> None:
        self.start, self.size_bytes, self.end, self.kept = start, size_bytes, start + size_bytes, kept
        self.users: Clock = {}


class PinnedPool:
    """Page-locked host memory with a cap of its own; a buffer is given back when its storage dies."""

    def __init__(self, capacity_bytes: int, on_release: Callable[[PinnedBuffer], None]) -> None:
        self.capacity_bytes = capacity_bytes
        self.live_bytes = self.peak_bytes = 0
        self._on_release = on_release
        self._starts: list[int] = []
        self._buffers: dict[int, PinnedBuffer] = {}

    def allocate(self, size_bytes: int, kept: bool = False) -> torch.Tensor | None:
        """Return exactly `size_bytes` as uint8, filled with 0xFF (NaN as floats), or None beyond the cap."""
        if self.live_bytes + size_bytes > self.capacity_bytes:
            return None
        memory = torch.full((size_bytes,), 0xFF, dtype=torch.uint8)
        if size_bytes:
            buffer = PinnedBuffer(memory.data_ptr(), size_bytes, kept)
            self._buffers[buffer.start] = buffer
            bisect.insort(self._starts, buffer.start)
            self.live_bytes += size_bytes
            self.peak_bytes = max(self.peak_bytes, self.live_bytes)
            weakref.finalize(memory.untyped_storage(), self._release, buffer).atexit = False
        return memory

    def find(self, host: torch.Tensor) -> PinnedBuffer | None:
        """Return the buffer that the first byte of `host` lies in, or None for pageable memory."""
        if not self._starts:
            return None
        address = host.data_ptr()
        index = bisect.bisect_right(self._starts, address) - 1
        if index < 0:
            return None
        buffer = self._buffers[self._starts[index]]
        return buffer if address < buffer.end else None

    def _release(self, buffer: PinnedBuffer) -> None:
        del self._buffers[buffer.start]
        self._starts.remove(buffer.start)
        self.live_bytes -= buffer.size_bytes
        self._on_release(buffer)
