"""Apple GPUs: unified memory, synchronous copies, no pinning. Imports torch."""

from collections.abc import Mapping
from typing import Any

import torch

from framework.errors import ConfigError
from framework.platforms.protocol import EventHandle, MemoryFigures, StreamHandle
from framework.platforms.synchronous import SynchronousPlatform


class MpsPlatform(SynchronousPlatform):
    """One Apple GPU."""

    kind = "mps"

    def __init__(self, index: int = 0, hardware: Mapping[str, Any] | None = None) -> None:
        if index:
            raise ConfigError.of("device", f"there is no mps:{index}", hint="write mps")
        if not torch.backends.mps.is_available():
            raise ConfigError.of("device", "this machine has no MPS device", hint="write device=cpu or device=auto")
        self.device = torch.device("mps")
        self._peak_bytes = 0
        self._cap_bytes: int | None = None

    def synchronize(self, target: StreamHandle | EventHandle | None = None) -> None:
        torch.mps.synchronize()

    def memory(self) -> MemoryFigures:
        """The driver keeps no peak, so `peak_bytes` is the most seen by a call of this method."""
        total = torch.mps.recommended_max_memory()
        allocated = torch.mps.current_allocated_memory()
        self._peak_bytes = max(self._peak_bytes, allocated)
        usable = total if self._cap_bytes is None else min(total, self._cap_bytes)
        return MemoryFigures(
            total_bytes=total,
            free_bytes=max(0, usable - torch.mps.driver_allocated_memory()),
            allocated_bytes=allocated,
            peak_bytes=self._peak_bytes,
        )

    def cap(self, size_bytes: int | None) -> None:
        """Bound torch's allocator, in shares of what Metal recommends; a share of 0 would mean no bound at all."""
        total = torch.mps.recommended_max_memory()
        self._cap_bytes = size_bytes
        torch.mps.set_per_process_memory_fraction(1.0 if size_bytes is None else min(1.0, max(size_bytes, 1) / total))

    def reset_peak(self) -> None:
        self._peak_bytes = 0

    def release_cache(self) -> None:
        torch.mps.empty_cache()
