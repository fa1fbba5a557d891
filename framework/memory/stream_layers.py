"""The two kinds of layers of a streamed component. Imports torch."""

from collections.abc import Callable

from torch import nn

from framework.memory.mover import Held
from framework.memory.parcel import Bound, Parcel
from framework.memory.ring import Slot


class StreamedLayer:
    """A layer that passes through the ring; `bound` are its weights as views of each slot it has been in."""

    __slots__ = ("bound", "evict", "index", "module", "parcel", "slot")

    def __init__(self, index: int, module: nn.Module, parcel: Parcel) -> None:
        self.index, self.module, self.parcel = index, module, parcel
        self.slot: Slot | None = None
        self.bound: dict[int, Bound] = {}
        self.evict: Callable[[], None] = lambda: None


class ResidentLayer:
    """A layer that stays for the use."""

    __slots__ = ("held", "index", "module")

    def __init__(self, index: int, module: nn.Module, held: Held) -> None:
        self.index, self.module, self.held = index, module, held
