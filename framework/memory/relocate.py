"""Moves a module for good: every weight once, with its class and attributes, all or none. Imports torch.

`Module.to` makes plain parameters of those that carry a format where the device has a tensor class of its own.
"""

import torch
from torch import Tensor, nn

from framework.memory.recipes import CannotRebuild, take_apart


def relocate(module: nn.Module, device: torch.device) -> None:
    """Bring all parameters and buffers to `device`; ties stay ties. What fails leaves the module as it was.

    Raises what the platform raises when there is no room.
    """
    before: list[tuple[dict[str, Tensor | None], str, Tensor]] = []
    moved: dict[int, Tensor] = {}
    try:
        for part in module.modules():
            for holder in (part._parameters, part._buffers):
                _relocate_entries(holder, device, before, moved)  # type: ignore[arg-type]
    except BaseException:
        for holder, name, tensor in before:
            holder[name] = tensor
        raise


def _relocate_entries(
    holder: dict[str, Tensor | None],
    device: torch.device,
    before: list[tuple[dict[str, Tensor | None], str, Tensor]],
    moved: dict[int, Tensor],
) -> None:
    for name, tensor in holder.items():
        if tensor is None or tensor.device == device:
            continue
        if id(tensor) not in moved:
            moved[id(tensor)] = _on(tensor, device)
        before.append((holder, name, tensor))  # keeps it alive, so that no other gets its id
        holder[name] = moved[id(tensor)]


def _on(tensor: Tensor, device: torch.device) -> Tensor:
    with torch.inference_mode(False), torch.no_grad():
        if type(tensor) is nn.Parameter and not vars(tensor):
            return nn.Parameter(tensor.detach().to(device), requires_grad=False)
        try:
            recipe = take_apart(tensor)
        except CannotRebuild:
            return tensor.to(device)  # its own class knows how
        return recipe.build([leaf.to(device) for leaf in recipe.leaves])
