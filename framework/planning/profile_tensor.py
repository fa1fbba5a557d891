"""Tensors without their numbers on a device without memory: shapes, strides, lifetimes and bytes. Imports torch.

They bear the device name of `sim`, so that code cannot tell them from tensors on an accelerator. Small ones whose
numbers are known keep them, for masks, token counts and timesteps decide what a pipeline does; all others are unknown.
"""

from collections.abc import Callable
from typing import Any, ClassVar

import torch

from framework.platforms.sim.ledger import round_up

KEPT_ELEMENTS = 1 << 14
"""Up to this many elements a tensor keeps its numbers, where they are known."""


class Mark:
    """The most that was alive while it was watched."""

    __slots__ = ("peak_bytes", "start_bytes")

    def __init__(self, live_bytes: int) -> None:
        self.start_bytes = self.peak_bytes = live_bytes

    @property
    def added_bytes(self) -> int:
        """How far the peak lies above what was alive at first."""
        return self.peak_bytes - self.start_bytes


class Memory:
    """Live bytes in granules of 512, and their maxima for all marks that are watching."""

    def __init__(self) -> None:
        self.live_bytes = 0
        self.marks: list[Mark] = []

    def watch(self) -> Mark:
        mark = Mark(self.live_bytes)
        self.marks.append(mark)
        return mark

    def unwatch(self, mark: Mark) -> None:
        self.marks = [other for other in self.marks if other is not mark]

    def take(self, size_bytes: int) -> None:
        self.live_bytes += size_bytes
        for mark in self.marks:
            if self.live_bytes > mark.peak_bytes:
                mark.peak_bytes = self.live_bytes

    def give_back(self, size_bytes: int) -> None:
        self.live_bytes -= size_bytes

    def spike(self, size_bytes: int) -> None:
        """Take and give back at once."""
        self.take(size_bytes)
        self.give_back(size_bytes)


class Block:
    """One allocation, given back with its last tensor. `owner` names the weight it holds: weights are charged by the
    planner, not here. `unknown`: its numbers are not known any more, whatever a tensor in it still says."""

    __slots__ = ("memory", "nbytes", "owner", "unknown")

    def __init__(self, memory: Memory, nbytes: int, owner: str | None = None) -> None:
        self.memory, self.nbytes, self.owner, self.unknown = memory, nbytes, owner, False
        if owner is None:
            memory.take(round_up(nbytes))

    def __del__(self) -> None:
        if self.owner is None:
            self.memory.give_back(round_up(self.nbytes))


class ShapeTensor(torch.Tensor):
    """A tensor of the device `sim` in `block`; `raw` is a meta tensor of its layout, or a small host tensor."""

    raw: torch.Tensor
    block: Block
    handler: ClassVar[Callable[..., Any]]  # set by `profile_dispatch`, which needs this class

    @staticmethod
    def __new__(cls, raw: torch.Tensor, block: Block) -> Any:
        tensor: ShapeTensor = torch.Tensor._make_wrapper_subclass(
            cls,
            raw.size(),
            strides=raw.stride(),
            storage_offset=raw.storage_offset(),
            dtype=raw.dtype,
            device=torch.device("sim", 0),
        )
        tensor.raw, tensor.block = raw, block
        return tensor

    __torch_function__ = torch._C._disabled_torch_function_impl  # type: ignore[assignment]

    @classmethod
    def __torch_dispatch__(  # type: ignore[override]
        cls, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        return cls.handler(func, args, kwargs or {})

    def numbers(self) -> torch.Tensor:
        """The host tensor that holds its numbers, or a meta tensor where they are not known."""
        if self.block.unknown and self.raw.device.type != "meta":
            self.raw = on_meta(self.raw)
        return self.raw

    @property
    def is_known(self) -> bool:
        return self.raw.device.type != "meta" and not self.block.unknown

    def tolist(self) -> Any:
        return self.cpu().tolist()

    def __deepcopy__(self, memo: dict[int, Any]) -> torch.Tensor:
        new: torch.Tensor = self.detach().clone()
        memo[id(self)] = new
        return new

    def __repr__(self) -> str:  # type: ignore[override]
        return f"ShapeTensor(shape={tuple(self.shape)}, dtype={self.dtype})"

    __str__ = __repr__

    def __format__(self, spec: str) -> str:
        return repr(self)


def on_meta(raw: torch.Tensor) -> torch.Tensor:
    """Return a meta tensor of the layout of `raw`, its place in its storage included."""
    offset = int(raw.storage_offset())
    return like_layout(raw.shape, raw.stride(), offset, raw.dtype, raw.untyped_storage().nbytes())


def like_layout(shape: Any, strides: Any, offset: int, dtype: torch.dtype, nbytes: int) -> torch.Tensor:
    """Return a meta tensor at `offset` of a storage of `nbytes`."""
    base = torch.empty(nbytes // dtype.itemsize, dtype=dtype, device="meta")
    return base.as_strided(shape, strides, offset)


def shape_tensor(raw: torch.Tensor, block: Block) -> ShapeTensor:
    made: ShapeTensor = ShapeTensor(raw, block)
    return made


def alias(raw: torch.Tensor, base: ShapeTensor) -> ShapeTensor:
    """Wrap a view of `base`; one of an ordinary tensor is ordinary in inference mode too."""
    if torch.is_inference_mode_enabled() and not base.is_inference():
        with torch.inference_mode(False):
            return shape_tensor(raw, base.block)
    return shape_tensor(raw, base.block)


def fresh(raw: torch.Tensor, memory: Memory) -> ShapeTensor:
    """Give `raw` memory of its own; large host tensors lose their numbers."""
    if raw.device.type != "meta" and raw.numel() > KEPT_ELEMENTS:
        raw = on_meta(raw)
    return shape_tensor(raw, Block(memory, raw.untyped_storage().nbytes()))


def weight(raw: torch.Tensor, memory: Memory, owner: str) -> ShapeTensor:
    """Return a weight: it takes no memory here and remembers its name."""
    made = shape_tensor(raw, Block(memory, raw.untyped_storage().nbytes(), owner))
    if raw.device.type != "meta" and raw.numel() > KEPT_ELEMENTS:
        made.block.unknown = True
    return made


def touched_bytes(tensor: torch.Tensor) -> int:
    """Return what a kernel reads of `tensor`, or writes to it: overlapping elements once."""
    elements = tensor.numel()
    if not tensor.is_contiguous():
        hull = 1 + sum((length - 1) * stride for length, stride in zip(tensor.shape, tensor.stride(), strict=True))
        elements = min(elements, hull)
    return elements * tensor.element_size()


def dtype_name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")
