"""Finding the first value that is no number, without making the device wait. Imports torch."""

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor

from framework.errors import StageError
from framework.values import Condition, Embeddings, Frames, Latents

ORDERED = (torch.float64, torch.float32, torch.float16, torch.bfloat16)
"""Dtypes that `aminmax` knows on the CPU."""


class NotFinite(StageError):
    """A stage computed NaN or infinity."""


def tensors_of(value: Any) -> Iterator[Tensor]:
    """Yield the tensors inside a value that crosses a stage boundary."""
    if isinstance(value, Tensor):
        yield value
    elif isinstance(value, Latents | Frames):
        yield value.data
    elif isinstance(value, Embeddings):
        yield from tensors_of(list(value.parts.values()))
    elif isinstance(value, Condition):
        yield from tensors_of(list(value.prepared.values()))
    elif isinstance(value, list | tuple):
        for item in value:
            yield from tensors_of(item)


def finite_flag(tensor: Tensor) -> Tensor:
    """Return one boolean on the tensor's own device; reading it later is what waits.

    On the CPU both ends of the values tell: a NaN spreads to them, and nothing of the tensor's size is made.
    """
    if not tensor.is_floating_point():
        return torch.ones((), dtype=torch.bool)
    if tensor.device.type == "cpu" and tensor.numel() and tensor.dtype in ORDERED:
        low, high = torch.aminmax(tensor)
        return torch.isfinite(low) & torch.isfinite(high)
    return torch.isfinite(tensor).all()


def all_finite(value: Any) -> bool:
    return all(bool(finite_flag(tensor)) for tensor in tensors_of(value))


class FiniteWatch:
    """Collects flags in a loop. On the CPU a bad one is known at once; elsewhere it is read when the stage ends."""

    def __init__(self) -> None:
        self._flags: list[tuple[str, Tensor]] = []

    def add(self, where: str, value: Any) -> str | None:
        """Note the tensors of `value` under `where`; return `where` if they are known to be bad already."""
        for tensor in tensors_of(value):
            flag = finite_flag(tensor)
            if flag.device.type == "cpu":
                if not flag:
                    return where
            else:
                self._flags.append((where, flag))
        return None

    def first_bad(self) -> str | None:
        """Return where the first bad value was seen, or None."""
        return next((where for where, flag in self._flags if not flag), None)
