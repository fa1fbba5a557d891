"""The seam between a diffusers pipeline and the residency engine: an accelerate-compatible `_hf_hook`. Imports torch.

`_execution_device`, `get_module_execution_device` and the VAEs' `apply_forward_hook` read it; a VAE's `encode` and
`decode` call only `pre_forward`, so that is where a call is announced.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch import nn

OnCall = Callable[[str], None]


class ManagedHook:
    """Says where a component computes and tells the residency manager of every call. One for each component."""

    no_grad = False  # read by accelerate

    def __init__(self, component: str, execution_device: torch.device) -> None:
        self.component = component
        self.execution_device = execution_device
        self.on_call: OnCall | None = None
        self.on_return: OnCall | None = None

    def init_hook(self, module: nn.Module) -> nn.Module:
        return module

    def pre_forward(self, module: nn.Module, *args: Any, **kwargs: Any) -> tuple[tuple[Any, ...], dict[str, Any]]:
        if self.on_call is not None:
            self.on_call(self.component)
        return args, kwargs

    def post_forward(self, module: nn.Module, output: Any) -> Any:
        if self.on_return is not None:
            self.on_return(self.component)
        return output

    def detach_hook(self, module: nn.Module) -> nn.Module:
        return module


def attach_hook(module: nn.Module, component: str, execution_device: torch.device) -> ManagedHook:
    """Put a fresh hook on `module` and return it."""
    from accelerate.hooks import add_hook_to_module

    hook = ManagedHook(component, execution_device)
    add_hook_to_module(module, hook)
    return hook
