"""The host as a device: everything is resident, nothing is copied. Imports torch."""

import os
import resource
from collections.abc import Mapping
from typing import Any

import torch

from framework.errors import ConfigError
from framework.platforms.protocol import EventHandle, MemoryFigures, StreamHandle
from framework.platforms.synchronous import SynchronousPlatform


class CpuPlatform(SynchronousPlatform):
    """The processor; its figures are those of this process."""

    kind = "cpu"

    def __init__(self, index: int = 0, hardware: Mapping[str, Any] | None = None) -> None:
        if index:
            raise ConfigError.of("device", f"there is no cpu:{index}", hint="write cpu")
        self.device = torch.device("cpu")

    def synchronize(self, target: StreamHandle | EventHandle | None = None) -> None:
        """Kernels of the host are done when they return."""

    def memory(self) -> MemoryFigures:
        page = os.sysconf("SC_PAGE_SIZE")
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
        resident = _resident_bytes(page, peak)
        return MemoryFigures(
            total_bytes=os.sysconf("SC_PHYS_PAGES") * page,
            free_bytes=os.sysconf("SC_AVPHYS_PAGES") * page,
            allocated_bytes=resident,
            peak_bytes=max(peak, resident),  # the kernel brings its own maximum up to date now and then
        )

    def cap(self, size_bytes: int | None) -> None:
        """Refuse a bound: the host's memory is not handed out by an allocator that has one."""
        if size_bytes is not None:
            reason = "on the cpu the device's memory is the host's"
            raise ConfigError.of("budget.device", reason, hint="use budget.host")

    def reset_peak(self) -> None:
        """The operating system keeps the peak of a process; it cannot be reset."""

    def release_cache(self) -> None:
        """The host allocator keeps no cache worth giving back."""


def _resident_bytes(page_bytes: int, peak_bytes: int) -> int:
    """Resident set of this process; its peak where there is no /proc."""
    try:
        with open("/proc/self/statm", encoding="ascii") as file:
            return int(file.read().split()[1]) * page_bytes
    except OSError:
        return peak_bytes
