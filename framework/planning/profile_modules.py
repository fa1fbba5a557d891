"""Modules of full size without a weight: built from a config alone, every tensor as loading would leave it. Torch."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from framework.planning.profile_tensor import Memory, ShapeTensor, weight


def shape_module(cls: Any, config: Mapping[str, Any], dtype: torch.dtype, memory: Memory, name: str) -> nn.Module:
    """Build `cls` from its config with weights that have shapes only, on the device of shapes.

    Dtypes are those that `from_pretrained` gives in `dtype`: what a class keeps in float32 stays so.
    """
    module = _build(cls, config, dtype)
    for key, tensor, holder, own in _saved(module):
        wanted = _loaded_dtype(module, key, tensor, dtype)
        if wanted != tensor.dtype:
            moved = tensor.detach().to(wanted)
            holder[own] = nn.Parameter(moved, requires_grad=False) if isinstance(tensor, nn.Parameter) else moved
    _put_on_device(module, memory, name)
    return module.eval().requires_grad_(False)


def _build(cls: Any, config: Mapping[str, Any], dtype: torch.dtype) -> nn.Module:
    """Construct on no device, floating tensors in `dtype` as the libraries do it."""
    if hasattr(cls, "load_config"):  # diffusers
        return _build_of_diffusers(cls, dict(config), dtype)
    settings = cls.config_class.from_dict(dict(config))
    with _default_dtype(dtype), torch.device("meta"):
        module: nn.Module = cls(settings)
    if hasattr(module, "tie_weights"):
        module.tie_weights()  # type: ignore[operator]
    return module


def _build_of_diffusers(cls: Any, config: dict[str, Any], dtype: torch.dtype) -> nn.Module:
    """Without a number; where a constructor looks at some, its buffers are real, as they are when it is loaded."""
    from accelerate import init_empty_weights

    with _default_dtype(dtype):
        try:
            with torch.device("meta"):
                module: nn.Module = cls.from_config(config)
        except (RuntimeError, NotImplementedError, ValueError):
            with init_empty_weights():
                module = cls.from_config(config)
    return module


@contextmanager
def _default_dtype(dtype: torch.dtype) -> Iterator[None]:
    before = torch.get_default_dtype()
    torch.set_default_dtype(dtype)
    try:
        yield
    finally:
        torch.set_default_dtype(before)


def _saved(module: nn.Module) -> list[tuple[str, Tensor, dict[str, Any], str]]:
    """Name, tensor and place of everything that a checkpoint holds; floating tensors only."""
    found = []
    for prefix, part in module.named_modules():
        for holder in (part._parameters, part._buffers):
            for own, tensor in holder.items():
                unsaved = holder is part._buffers and own in part._non_persistent_buffers_set
                if tensor is not None and tensor.is_floating_point() and not unsaved:
                    found.append((f"{prefix}.{own}" if prefix else own, tensor, holder, own))
    return found


def _loaded_dtype(module: nn.Module, key: str, tensor: Tensor, dtype: torch.dtype) -> torch.dtype:
    if type(module).__module__.startswith("transformers."):
        patterns = set(getattr(module, "_keep_in_fp32_modules_strict", None) or ()) if dtype.itemsize == 2 else set()
        if dtype == torch.float16:
            patterns |= set(getattr(module, "_keep_in_fp32_modules", None) or ())
        return torch.float32 if any(pattern in key.split(".") for pattern in patterns) else tensor.dtype
    kept = getattr(module, "_keep_in_fp32_modules", None) or ()
    return torch.float32 if any(part in kept for part in key.split(".")) else dtype


def _put_on_device(module: nn.Module, memory: Memory, name: str) -> None:
    """Exchange every parameter and buffer for a weight of the device; ties stay ties."""
    made: dict[int, Tensor] = {}
    for prefix, part in module.named_modules():
        for holder in (part._parameters, part._buffers):
            for own, tensor in holder.items():
                if tensor is None:
                    continue
                if id(tensor) not in made:
                    key = f"{prefix}.{own}" if prefix else own
                    made[id(tensor)] = _weight(tensor, memory, f"{name}:{key}")
                holder[own] = made[id(tensor)]


def _weight(tensor: Tensor, memory: Memory, owner: str) -> Tensor:
    found: ShapeTensor = weight(tensor.detach(), memory, owner)
    if isinstance(tensor, nn.Parameter):
        found._is_param = True
    return found
