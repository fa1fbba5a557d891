"""Hooks that tell a streamer of every call of its layers and of every pass. Imports torch."""

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from torch import nn
from torch.utils.hooks import RemovableHandle

from framework.memory.hooks import uncompiled
from framework.memory.order import CallOrder
from framework.memory.stream_layers import ResidentLayer, StreamedLayer

L = TypeVar("L", StreamedLayer, ResidentLayer)


def hook_layers(
    layers: Sequence[StreamedLayer | ResidentLayer],
    enter: Callable[[StreamedLayer], None],
    leave: Callable[[StreamedLayer], None],
    enter_resident: Callable[[ResidentLayer], None],
) -> list[RemovableHandle]:
    """Call `enter` before and `leave` after every call of a streamed layer, whatever it raises; return the handles."""
    handles = []
    for layer in layers:
        if isinstance(layer, StreamedLayer):
            handles.append(_before(layer.module, _caller(enter, layer)))
            after = uncompiled(_caller(leave, layer))
            handles.append(layer.module.register_forward_hook(after, always_call=True))
        else:
            handles.append(_before(layer.module, _caller(enter_resident, layer)))
    return handles


def hook_passes(module: nn.Module, order: CallOrder) -> list[RemovableHandle]:
    """Tell `order` where each forward of the component begins and where one has come to its end."""
    after = uncompiled(lambda *_: order.finish_pass())
    return [_before(module, lambda *_: order.start_pass()), module.register_forward_hook(after)]


def _caller(method: Callable[[L], None], layer: L) -> Callable[..., None]:
    def hook(*_: Any) -> None:
        method(layer)

    return hook


def _before(module: nn.Module, hook: Callable[..., None]) -> RemovableHandle:
    return module.register_forward_pre_hook(uncompiled(hook), prepend=True)
