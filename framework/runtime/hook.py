"""The seam between a diffusers pipeline and the residency engine: an accelerate-compatible `_hf_hook`. Imports torch.

`_execution_device`, `get_module_execution_device` and the VAEs' `apply_forward_hook` read it; entry points other than
`forward` call only `pre_forward`, so that is where a call is announced.
"""

from collections.abc import Callable
from functools import wraps
from typing import Any

import torch
from torch import nn

from framework.runtime.switches import COMPONENT_SWITCHES, refuse_component_switches, refuse_move

OnCall = Callable[[str], None]
OnCast = Callable[[str, torch.dtype], None]
Around = Callable[[str, Callable[..., Any], tuple[Any, ...], dict[str, Any]], Any]
"""Gets the component, the whole call and its arguments; returns what the caller is to get."""
Bridge = Callable[[Callable[..., Any], tuple[Any, ...], dict[str, Any]], Any]
"""Gets the whole call and its arguments, makes it, and returns what it gave."""
VAE_ENTRY_POINTS = ("encode", "decode")  # wrapped by `apply_forward_hook` they announce themselves
ENTRY_POINTS = (*VAE_ENTRY_POINTS, "generate", "get_image_features", "get_text_features")
"""Ways into a module beside its forward, which they may never reach."""


class ManagedHook:
    """Says where a component computes and tells the residency manager of every call. One for each component."""

    no_grad = False  # read by accelerate

    def __init__(self, component: str, execution_device: torch.device) -> None:
        self.component = component
        self.execution_device = execution_device
        self.on_call: OnCall | None = None
        self.on_return: OnCall | None = None
        self.on_cast: OnCast | None = None
        self.around: Around | None = None  # decides about a whole call, its announcement included
        self.bridge: Bridge | None = None  # carries values to another device and back

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
    module._compiled_call_impl = _surrounded(module._call_impl, hook)  # what torch calls in place of `_call_impl`
    for name in ENTRY_POINTS:
        method = getattr(type(module), name, None)
        if callable(method):
            announces_itself = name in VAE_ENTRY_POINTS and hasattr(method, "__wrapped__")
            bound = getattr(module, name) if announces_itself else _announced(method, module, hook)
            setattr(module, name, _surrounded(bound, hook))
    vars(module)["to"] = _cast_only(module, hook)
    refuse_component_switches(module, component)
    return hook


def remove_hook(module: nn.Module) -> None:
    """Take off what `attach_hook` put on `module`."""
    from accelerate.hooks import remove_hook_from_module

    remove_hook_from_module(module)
    module._compiled_call_impl = None
    for name in (*ENTRY_POINTS, *COMPONENT_SWITCHES, "to"):
        vars(module).pop(name, None)


def _cast_only(module: nn.Module, hook: ManagedHook) -> Callable[..., nn.Module]:
    """Bind a `to` that, while a request runs, asks for another dtype instead of casting, and refuses another device.

    Pipelines cast their VAE so: its weights may not be there yet, and their masters must stay as they are.
    """

    @wraps(module.to)
    def to(*args: Any, **kwargs: Any) -> nn.Module:
        device, dtype, _, _ = torch._C._nn._parse_to(*args, **kwargs)
        if device is not None:
            refuse_move(hook.component, device, hook.execution_device)
        if hook.on_cast is None:
            return type(module).to(module, *args, **kwargs)
        if dtype is not None:
            hook.on_cast(hook.component, dtype)
        return module

    return to


def _surrounded(call: Callable[..., Any], hook: ManagedHook) -> Callable[..., Any]:
    """Return `call` as whoever serves the request wants it: made, repeated, or answered without being made."""

    @wraps(call)
    def decide(*args: Any, **kwargs: Any) -> Any:
        made = call if hook.bridge is None else _bridged(call, hook.bridge)
        if hook.around is None:
            return made(*args, **kwargs)
        return hook.around(hook.component, made, args, kwargs)

    return decide


def _bridged(call: Callable[..., Any], bridge: Bridge) -> Callable[..., Any]:
    return lambda *args, **kwargs: bridge(call, args, kwargs)


def _announced(method: Callable[..., Any], module: nn.Module, hook: ManagedHook) -> Callable[..., Any]:
    """Bind `method` so that a call of it is announced; inside an announced call that changes nothing."""

    @wraps(method)
    def call(*args: Any, **kwargs: Any) -> Any:
        hook.pre_forward(module)
        return method(module, *args, **kwargs)

    return call
