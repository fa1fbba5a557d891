"""NVIDIA GPUs, and AMD ones through ROCm's build of torch.cuda. Imports torch.

The only device code that `sim` does not prove, so it holds no decision of its own.
"""

import mmap
import weakref
from collections.abc import Mapping
from typing import Any

import torch

from framework.errors import ConfigError
from framework.platforms.protocol import EventHandle, MemoryFigures, StreamHandle


class CudaPlatform:
    """One GPU seen through torch.cuda."""

    kind = "cuda"
    overlaps = True
    pins = True
    unified = False

    def __init__(self, index: int = 0, hardware: Mapping[str, Any] | None = None) -> None:
        if not torch.cuda.is_available():
            raise ConfigError.of("device", "this machine has no CUDA device", hint="write device=cpu or device=auto")
        count = torch.cuda.device_count()
        if index >= count:
            raise ConfigError.of("device", f"there is no cuda:{index}", hint=f"the last one is cuda:{count - 1}")
        self.device = torch.device("cuda", index)
        self._pinned_bytes = 0
        self._cap_bytes: int | None = None

    def make_stream(self, name: str) -> StreamHandle:
        return torch.cuda.Stream(self.device)  # type: ignore[no-untyped-call]

    def current_stream(self) -> StreamHandle:
        return torch.cuda.current_stream(self.device)

    def record_event(self, stream: StreamHandle) -> EventHandle:
        return stream.record_event()

    def wait_event(self, stream: StreamHandle, event: EventHandle) -> None:
        stream.wait_event(event)

    def synchronize(self, target: StreamHandle | EventHandle | None = None) -> None:
        if target is None:
            torch.cuda.synchronize(self.device)
        else:
            target.synchronize()

    def allocate_pinned(self, size_bytes: int) -> torch.Tensor | None:
        """Page-lock whole pages of our own: torch's pinned allocator rounds a size up to a power of two."""
        if size_bytes == 0:
            return torch.empty(0, dtype=torch.uint8)
        pages = mmap.mmap(-1, size_bytes)
        memory = torch.frombuffer(pages, dtype=torch.uint8, count=size_bytes)
        with torch.cuda.device(self.device):
            refused = int(_runtime().cudaHostRegister(memory.data_ptr(), size_bytes, 0)) != 0
            if refused:
                self._clear_error()
                return None
        self._pinned_bytes += size_bytes
        # The callback holds the pages, so they are unlocked before they are unmapped.
        weakref.finalize(memory.untyped_storage(), self._unpin, memory.data_ptr(), size_bytes, pages).atexit = False
        return memory

    def _unpin(self, address: int, size_bytes: int, pages: mmap.mmap) -> None:
        _runtime().cudaHostUnregister(address)
        self._pinned_bytes -= size_bytes

    def _clear_error(self) -> None:
        """A refused registration stays behind as the last error, and the next kernel would report it as its own."""
        try:
            torch.ones(1, device=self.device).add_(1)
        except RuntimeError:
            return

    def copy_async(self, dst: torch.Tensor, src: torch.Tensor, stream: StreamHandle) -> None:
        with torch.cuda.stream(stream):
            dst.copy_(src, non_blocking=True)

    def reserve(self, size_bytes: int) -> torch.Tensor:
        return torch.empty(size_bytes, dtype=torch.uint8, device=self.device)

    def retire(self, memory: torch.Tensor) -> None:
        """Nothing to do: only `sim` checks it."""

    def memory(self) -> MemoryFigures:
        free, total = torch.cuda.mem_get_info(self.device)
        if self._cap_bytes is not None:
            free = max(0, min(free, self._cap_bytes - torch.cuda.memory_reserved(self.device)))
        return MemoryFigures(
            total_bytes=total,
            free_bytes=free,
            allocated_bytes=torch.cuda.memory_allocated(self.device),
            peak_bytes=torch.cuda.max_memory_allocated(self.device),
            pinned_bytes=self._pinned_bytes,
        )

    def cap(self, size_bytes: int | None) -> None:
        """Bound torch's allocator; the driver's context, some hundred MiB, comes on top."""
        total = torch.cuda.mem_get_info(self.device)[1]
        self._cap_bytes = size_bytes if size_bytes is not None and size_bytes < total else None
        share = 1.0 if self._cap_bytes is None else self._cap_bytes / total
        torch.cuda.set_per_process_memory_fraction(share, self.device)

    def reset_peak(self) -> None:
        torch.cuda.reset_peak_memory_stats(self.device)

    def release_cache(self) -> None:
        with torch.cuda.device(self.device):
            torch.cuda.empty_cache()

    def make_generator(self, seed: int) -> torch.Generator:
        return torch.Generator(self.device).manual_seed(seed)

    def mark(self, **labels: str | int | None) -> None:
        """The profiler names copies by their kernels."""


def _runtime() -> Any:
    return torch.cuda.cudart()  # type: ignore[no-untyped-call]
