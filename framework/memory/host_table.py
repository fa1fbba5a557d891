"""Big lookup tables that stay on the host: only the rows that are asked for travel. Imports torch.

A text encoder reads some hundred rows of a table of gigabytes. That holds for embeddings alone: a table that is also
used as a matrix (a tied head) is an ordinary weight.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.hooks import RemovableHandle

from framework.memory.absent import make_placeholder
from framework.memory.courier import Courier
from framework.memory.hooks import uncompiled
from framework.memory.ownership import REST, Weight

TABLE_BYTES = 256 * 1024**2
HOST = torch.device("cpu")


class HostTable:
    """One table and every embedding that reads it. Indices come to the host, rows go to the device."""

    def __init__(self, component: str, weight: Weight, modules: Sequence[nn.Embedding], courier: Courier) -> None:
        self.component, self.names = component, tuple(place.name for place in weight.places)
        self._courier, self._device = courier, courier.platform.device
        self.weight = nn.Parameter(weight.tensor.detach().cpu(), requires_grad=False)
        self._own = False
        self.claim: Callable[[], None] = lambda: None  # books the copy that an edit needs, where books are kept
        self._places = tuple(weight.places)
        self._absent = make_placeholder(weight.tensor, self._device, component, weight.name, weight.name, {})
        self._put(self._absent)
        self._handles: list[RemovableHandle] = []
        for module in modules:
            self._handles.append(
                module.register_forward_pre_hook(uncompiled(self._before), with_kwargs=True, prepend=True)
            )
            self._handles.append(module.register_forward_hook(uncompiled(self._after), always_call=True))

    def editable(self) -> nn.Parameter:
        """Return the table in memory of its own, to be written to: it may have been a view of a mapped file."""
        if not self._own:
            self.claim()
            self.weight = nn.Parameter(self.weight.detach().clone(), requires_grad=False)
            self._own = True
        return self.weight

    def detach(self) -> None:
        """Remove the hooks and leave the table in its module."""
        for handle in self._handles:
            handle.remove()
        self._put(self.weight)

    def _before(self, module: nn.Module, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
        self._put(self.weight)
        return tuple(self._bring(value, HOST) for value in args), {
            name: self._bring(value, HOST) for name, value in kwargs.items()
        }

    def _after(self, module: nn.Module, args: Any, output: Any) -> Any:
        self._put(self._absent)
        return self._bring(output, self._device)

    def _bring(self, value: Any, device: torch.device) -> Any:
        """Move a tensor of indices or rows and count it: what travels for a table is traffic like any other."""
        if not isinstance(value, Tensor) or value.device == device:
            return value
        platform = self._courier.platform
        platform.mark(component=self.component, layer=self.names[0])
        moved = value.to(device)
        platform.mark(component=None, layer=None)
        self._courier.moved[self.component, "d2h" if device == HOST else "h2d"] += value.nbytes
        return moved

    def _put(self, tensor: Tensor) -> None:
        for place in self._places:
            place.holder[place.key] = tensor


def gather_only(
    module: nn.Module, weights: Sequence[Weight], least_bytes: int = TABLE_BYTES
) -> list[tuple[Weight, list[nn.Embedding]]]:
    """Return the tables of at least `least_bytes` that only embeddings outside the layers read, with those."""
    embeddings: dict[int, list[nn.Embedding]] = {}
    for part in module.modules():
        if type(part) is nn.Embedding and part.max_norm is None:
            embeddings.setdefault(id(part._parameters["weight"]), []).append(part)
    found = []
    for weight in weights:
        readers = embeddings.get(id(weight.tensor), [])
        own = {id(reader._parameters) for reader in readers}
        gathered = bool(readers) and all(id(place.holder) in own for place in weight.places)
        if gathered and weight.owners == {REST} and weight.tensor.nbytes >= least_bytes and _alone(weight, weights):
            found.append((weight, readers))
    return found


def _alone(weight: Weight, weights: Sequence[Weight]) -> bool:
    """Whether no other weight lies in the same storage as a view of it."""
    leaf = weight.recipe.leaves[0]
    start, end = leaf.data_ptr(), leaf.data_ptr() + leaf.nbytes
    others = (leaf for other in weights if other is not weight for leaf in other.recipe.leaves)
    return not any(start <= leaf.data_ptr() < end for leaf in others)
