"""How long a kernel takes: a roofline of arithmetic and memory traffic. Imports torch."""

import math
from collections.abc import Callable
from typing import Any, TypeAlias

import torch

from framework.platforms.hardware import HardwareProfile

Flops: TypeAlias = Callable[..., float]

_HALF = (torch.float16, torch.bfloat16)


def _matmul(args: tuple[Any, ...], out: Any) -> float:
    return float(2 * out.numel() * args[0].shape[-1])


def _addmm(args: tuple[Any, ...], out: Any) -> float:
    return float(2 * out.numel() * args[1].shape[-1])


def _conv(args: tuple[Any, ...], out: Any) -> float:
    weight = args[1].shape
    return float(2 * out.numel() * math.prod(weight[1:]))


def _conv_transpose(args: tuple[Any, ...], out: Any) -> float:
    weight = args[1].shape
    return float(2 * args[0].numel() * math.prod(weight[1:]))


def _convolution(args: tuple[Any, ...], out: Any) -> float:
    return _conv_transpose(args, out) if args[6] else _conv(args, out)


def _attention(args: tuple[Any, ...], out: Any) -> float:
    query, key, value = args[0].shape, args[1].shape, args[2].shape
    return float(2 * math.prod(query[:-1]) * key[-2] * (query[-1] + value[-1]))


_FLOPS: dict[str, tuple[str, Flops]] = {
    "mm": ("matmul", _matmul),
    "bmm": ("matmul", _matmul),
    "matmul": ("matmul", _matmul),
    "linear": ("matmul", _matmul),
    "addmm": ("matmul", _addmm),
    "baddbmm": ("matmul", _addmm),
    "_scaled_mm": ("matmul", _matmul),
    "conv1d": ("conv", _conv),
    "conv2d": ("conv", _conv),
    "conv3d": ("conv", _conv),
    "conv_transpose1d": ("conv", _conv_transpose),
    "conv_transpose2d.input": ("conv", _conv_transpose),
    "conv_transpose3d.input": ("conv", _conv_transpose),
    "convolution": ("conv", _convolution),
    "_convolution": ("conv", _convolution),
    "scaled_dot_product_attention": ("attention", _attention),
}


def flops_of(operator: str) -> tuple[str, Flops] | None:
    """Return (efficiency class, counter) of an operator by its name (`bmm`, `conv_transpose2d.input`), or None."""
    return _FLOPS.get(operator) or _FLOPS.get(operator.partition(".")[0])


def kernel_seconds(
    profile: HardwareProfile, size_bytes: int, counted: tuple[str, Flops] | None, args: tuple[Any, ...], out: Any
) -> float:
    """The longer of moving `size_bytes` through device memory and doing the arithmetic at the class's efficiency."""
    moving_s = size_bytes / (profile.memory_gbps * 1e9)
    if counted is None or not isinstance(out, torch.Tensor):
        return moving_s
    kind, count = counted
    rate = peak_tflops(profile, args[0].dtype) * 1e12 * float(getattr(profile.efficiency, kind))
    return max(moving_s, count(args, out) / rate)


def peak_tflops(profile: HardwareProfile, dtype: torch.dtype) -> float:
    """The dense peak for `dtype`; half rate stands in where the profile has no fp8 units."""
    if dtype in _HALF:
        return profile.bf16_tflops
    if dtype.itemsize == 1 and dtype.is_floating_point:
        return profile.fp8_tflops or profile.bf16_tflops
    return profile.fp32_tflops
