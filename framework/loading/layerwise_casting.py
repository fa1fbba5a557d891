"""Weights kept in few bits and cast for the time of their layer's call. Imports torch and diffusers.

Stores and computes what diffusers' `enable_layerwise_casting` does, to the bit. Its own hook changes the weights by
`.to`, which residency cannot follow: ours puts cast copies in place and the very weights back.
"""

from collections.abc import Iterable
from typing import Any

import torch
from diffusers.hooks import HookRegistry, ModelHook
from torch import nn

HOOK_NAME = "layerwise_casting"  # under which diffusers asks a module for the dtype it computes in


class CastForCall(ModelHook):  # type: ignore[misc]
    """Holds one layer's cast copies while it runs; `compute_dtype` is read by diffusers."""

    def __init__(self, storage_dtype: torch.dtype, compute_dtype: torch.dtype) -> None:
        super().__init__()
        self.storage_dtype, self.compute_dtype = storage_dtype, compute_dtype

    def new_forward(self, module: nn.Module, *args: Any, **kwargs: Any) -> Any:
        own = module._parameters
        stored = {name: w for name, w in own.items() if w is not None and w.dtype == self.storage_dtype}
        for name, weight in stored.items():
            own[name] = nn.Parameter(weight.detach().to(self.compute_dtype), requires_grad=False)
        try:
            return self.fn_ref.original_forward(*args, **kwargs)
        finally:
            own.update(stored)


def cast_for_calls(parts: Iterable[nn.Module], storage_dtype: torch.dtype, compute_dtype: torch.dtype) -> None:
    """Store the floating weights of `parts` in `storage_dtype`; ties stay ties."""
    memo: dict[int, tuple[nn.Parameter, nn.Parameter]] = {}  # keeps the old ones alive, so that no id comes again
    for part in parts:
        for name, weight in part._parameters.items():
            if weight is not None and weight.is_floating_point():
                if id(weight) not in memo:
                    memo[id(weight)] = weight, nn.Parameter(weight.detach().to(storage_dtype), requires_grad=False)
                part._parameters[name] = memo[id(weight)][1]
        hook = CastForCall(storage_dtype, compute_dtype)
        HookRegistry.check_if_exists_or_initialize(part).register_hook(hook, HOOK_NAME)
