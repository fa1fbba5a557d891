"""The platform of a pass over shapes: a device without limits whose log hears what runs now. Imports torch."""

from collections.abc import Callable

import torch

from framework.planning.profile_tensor import Memory
from framework.platforms.protocol import EventHandle, MemoryFigures, StreamHandle
from framework.platforms.synchronous import SynchronousPlatform

ENDLESS_BYTES = 1 << 60


class ShapePlatform(SynchronousPlatform):
    """`on_mark` gets the labels of the stage and the step that begin."""

    kind = "shapes"

    def __init__(self, memory: Memory, on_mark: Callable[..., None]) -> None:
        self.device = torch.device("sim", 0)
        self._memory = memory
        self._on_mark = on_mark

    def mark(self, **labels: str | int | None) -> None:
        self._on_mark(**labels)

    def synchronize(self, target: StreamHandle | EventHandle | None = None) -> None:
        """Nothing is under way."""

    def memory(self) -> MemoryFigures:
        live = self._memory.live_bytes
        return MemoryFigures(
            total_bytes=ENDLESS_BYTES, free_bytes=ENDLESS_BYTES - live, allocated_bytes=live, peak_bytes=live
        )

    def cap(self, size_bytes: int | None) -> None:
        """What is predicted knows no bound; the planner compares it with one."""

    def reset_peak(self) -> None:
        """Marks of the memory measure peaks here."""

    def release_cache(self) -> None:
        """Nothing is kept back."""
