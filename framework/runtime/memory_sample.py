"""What memory holds at one moment: the device's own figures, and the weights of each component. Imports torch."""

import os
from collections.abc import Container
from pathlib import Path

from framework.loading.weights import size_bytes
from framework.runtime.events import MemorySampled
from framework.runtime.placed import Placed

STATM = Path("/proc/self/statm")
PAGE_BYTES = os.sysconf("SC_PAGE_SIZE") if hasattr(os, "sysconf") else 4096


class MemorySampler:
    """Reads the figures of one device's components; cheap enough for every step, and it waits for nothing."""

    def __init__(self, placed: Placed) -> None:
        self._placed = placed
        self._platform = placed.resources.platform
        self._whole: dict[str, int] = {}

    def sample(self, request: int, in_use: Container[str]) -> MemorySampled:
        """Return the figures now; components of `in_use` hold what a use takes, the others what they keep between."""
        weights = {name: self._weights(name, name in in_use) for name in self._placed.components()}
        weights = {name: size for name, size in weights.items() if size}
        if self._platform.unified:
            return MemorySampled(request, None, None, host_bytes(), weights)
        figures = self._platform.memory()
        capacity = figures.free_bytes + figures.allocated_bytes
        return MemorySampled(request, figures.allocated_bytes, capacity, host_bytes(), weights)

    def _weights(self, component: str, in_use: bool) -> int:
        module, strategy = self._placed.built(component)
        found = getattr(strategy, "device_bytes" if in_use else "idle_bytes", None)
        if found is not None:
            return int(found)
        if component not in self._whole:
            self._whole[component] = size_bytes(module)
        return self._whole[component] if in_use or self._placed.mode(component) == "resident" else 0


def host_bytes() -> int | None:
    """Return the memory of this process that is in RAM, None where the system does not tell it at once."""
    try:
        return int(STATM.read_bytes().split()[1]) * PAGE_BYTES
    except OSError:
        return None
