"""What makes two calls of a component alike, and results made again from what they looked like. Imports torch."""

from collections.abc import Callable, Mapping
from dataclasses import fields, is_dataclass
from typing import Any

import torch

from framework.planning.profile_tensor import Block, Memory, ShapeTensor, like_layout, shape_tensor
from framework.platforms.sim.ledger import round_up

Again = Callable[[Memory], Any]
PLAIN = (int, float, bool, str, bytes, type(None), torch.dtype, torch.device)


class NotRepeatable(Exception):
    """A result holds something that cannot be made again."""


def signature(value: Any, with_numbers: bool = False) -> Any:
    """Return a hashable description of arguments: layouts of tensors, plain values, names of other things' classes.

    `with_numbers`: known numbers of masks and token ids belong to it; those of a timestep differ in every call, and no
    component computes other shapes for them.
    """
    if isinstance(value, torch.Tensor):
        layout = (tuple(value.shape), tuple(value.stride()), value.dtype, value.device.type)
        return (*layout, _numbers(value)) if with_numbers else layout
    if isinstance(value, PLAIN):
        return value
    if isinstance(value, list | tuple):
        return tuple(signature(entry, with_numbers) for entry in value)
    if isinstance(value, Mapping):
        return tuple((key, signature(entry, with_numbers)) for key, entry in value.items())
    return type(value).__name__


def _numbers(tensor: torch.Tensor) -> Any:
    if tensor.dim() < 2 and tensor.dtype != torch.bool:
        return None
    raw = tensor.numbers() if isinstance(tensor, ShapeTensor) else tensor
    return None if raw.device.type == "meta" else tuple(raw.flatten().tolist())


def repeater(result: Any, before: frozenset[int]) -> Again:
    """Return what makes `result` again with memory of its own, tensors that share memory sharing it again.

    `before` are the ids of the blocks that were there before the call. Raises `NotRepeatable` for a result that lies
    in one of them, or is of a class nobody here knows.
    """
    numbers: dict[int, int] = {}
    build = _builder(result, before, numbers)

    def again(memory: Memory) -> Any:
        return build(memory, {})

    return again


_Build = Callable[[Memory, dict[int, Block]], Any]


def _builder(value: Any, before: frozenset[int], numbers: dict[int, int]) -> _Build:
    if isinstance(value, ShapeTensor):
        return _tensor_builder(value, before, numbers)
    if isinstance(value, PLAIN):
        return lambda memory, blocks: value
    if type(value) in (list, tuple):
        kind, parts = type(value), [_builder(entry, before, numbers) for entry in value]
        return lambda memory, blocks: kind(part(memory, blocks) for part in parts)
    if isinstance(value, Mapping) and (is_dataclass(value) or type(value) is dict):  # outputs of both libraries
        return _mapping_builder(value, before, numbers)
    raise NotRepeatable(type(value).__name__)


def _mapping_builder(value: Any, before: frozenset[int], numbers: dict[int, int]) -> _Build:
    names = [field.name for field in fields(value)] if is_dataclass(value) else list(value)
    entries = {name: value.get(name) for name in names}
    parts = {name: _builder(entry, before, numbers) for name, entry in entries.items()}
    kind: Any = type(value)
    return lambda memory, blocks: kind(**{name: part(memory, blocks) for name, part in parts.items()})


def _tensor_builder(tensor: ShapeTensor, before: frozenset[int], numbers: dict[int, int]) -> _Build:
    block = tensor.block
    if id(block) in before or block.owner is not None:
        raise NotRepeatable("a view of what the call was given")
    number = numbers.setdefault(id(block), len(numbers))
    shape, strides, offset = tuple(tensor.shape), tuple(tensor.stride()), int(tensor.storage_offset())
    dtype, nbytes = tensor.dtype, block.nbytes

    def build(memory: Memory, blocks: dict[int, Block]) -> ShapeTensor:
        if number not in blocks:
            blocks[number] = Block(memory, nbytes)
        return shape_tensor(like_layout(shape, strides, offset, dtype, nbytes), blocks[number])

    return build


def blocks_of(value: Any) -> frozenset[int]:
    """Return the ids of the blocks that arguments lie in."""
    return frozenset(_blocks(value))


def new_bytes(result: Any, before: frozenset[int]) -> int:
    """Return the device bytes that a result holds beside the blocks that were there before."""
    found = {number: block for number, block in _blocks(result).items() if number not in before}
    return sum(round_up(block.nbytes) for block in found.values() if block.owner is None)


def _blocks(value: Any) -> dict[int, Block]:
    if isinstance(value, ShapeTensor):
        return {id(value.block): value.block}
    if isinstance(value, Mapping):
        value = list(value.values())
    found: dict[int, Block] = {}
    if isinstance(value, list | tuple):
        for entry in value:
            found |= _blocks(entry)
    return found
