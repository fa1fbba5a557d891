"""Strategy `resident`: weights stay on the execution device from the start. Imports torch."""

from collections.abc import Iterator, Mapping

import torch
from torch import nn

from framework.loading.weights import size_bytes
from framework.memory.casting import Undo, cast_parameters
from framework.memory.layerwise import is_sharded
from framework.memory.relocate import relocate
from framework.memory.resources import Resources
from framework.registry import register_strategy
from framework.spec import Placement


@register_strategy("resident")
class Resident:
    """Moves a component once; a use in another dtype gets cast copies, which the end of the use drops."""

    def __init__(
        self,
        component: str,
        module: nn.Module,
        placement: Placement,
        device: torch.device,
        resources: Resources | None = None,
    ) -> None:
        self.component = component
        self._module = module
        self._device = device
        self._sharded = is_sharded(module)  # FSDP places its own weights
        self._placed = self._sharded
        self._undo: Undo | None = None
        self._slots: list[Mapping[str, torch.Tensor | None]] = []
        for part in module.modules():
            self._slots += [part._parameters, part._buffers]
        self.device_bytes = self.idle_bytes = 0 if self._sharded else size_bytes(module)

    def place(self) -> None:
        """Move the weights, or leave all of them where they were."""
        if self._placed:
            return
        relocate(self._module, self._device)
        self._placed = True

    def prepare(self, dtype: torch.dtype | None = None) -> None:
        self.place()
        if dtype is not None:
            self._restore_dtype()
            self._undo = cast_parameters(self._module, dtype)

    def wait(self) -> None:
        """Nothing to wait for: the move is ordered before the component's own work."""

    def finish_use(self) -> None:
        self._restore_dtype()

    def finish_request(self, preferred: bool) -> None:
        self._restore_dtype()

    def prefetch(self, beside_active: bool) -> bool:
        self.place()
        return True

    def misplaced(self) -> list[str]:
        """Return the weights that are not on the device."""
        if self._sharded or not self._placed or all(_is_on(tensor, self._device) for tensor in self._tensors()):
            return []
        named = (*self._module.named_parameters(), *self._module.named_buffers())
        return [name for name, tensor in named if not _is_on(tensor, self._device)]

    def detach(self) -> None:
        """Leave the weights in the module, on the host."""
        self._restore_dtype()
        if self._placed and not self._sharded:
            relocate(self._module, torch.device("cpu"))
            self._placed = False

    def _tensors(self) -> Iterator[torch.Tensor]:
        """Every tensor without its name: this runs after every stage."""
        for slots in self._slots:
            yield from (tensor for tensor in slots.values() if tensor is not None)

    def _restore_dtype(self) -> None:
        if self._undo is not None:
            self._undo()
            self._undo = None


def _is_on(tensor: torch.Tensor, device: torch.device) -> bool:
    return tensor.device.type == device.type and device.index in (None, tensor.device.index)
