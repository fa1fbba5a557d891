"""Strategy `component-offload`: the whole component comes for a use and leaves after it. Imports torch."""

from collections.abc import Set

import torch
from torch import Tensor, nn

from framework.memory.casting import Undo, cast_parameters
from framework.memory.layerwise import attach_mover
from framework.memory.mover import changed_weight
from framework.memory.resources import Resources, make_resources
from framework.memory.unpin import unpin
from framework.registry import register_strategy
from framework.spec import Placement


@register_strategy("component-offload")
class ComponentOffload:
    """Keeps the weights on the host and drops the device's copy after each use; nothing is copied back."""

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
        shared = resources or make_resources(device)
        self._store = shared.store
        self._mover = attach_mover(component, module, shared)
        self._dtype: torch.dtype | None = None
        self._undo_cast: Undo | None = None

    def prepare(self, dtype: torch.dtype | None = None) -> None:
        """Start the copies; a failed one leaves the component on the host."""
        self._restore_dtype()
        self._dtype = dtype
        self._mover.start()

    def wait(self) -> None:
        self._mover.install()
        if self._dtype is not None:
            self._undo_cast = cast_parameters(self._module, self._dtype)
            self._dtype = None

    def finish_use(self) -> None:
        """Leave the device. Raises `ChangedWeight` after that if a weight was written to."""
        self._restore_dtype()
        changed = self._mover.drop()
        if changed:
            raise changed_weight(self.component, changed)

    def finish_request(self, preferred: bool) -> None:
        """Be on the host; a preferred component comes back, for the first real request."""
        self.finish_use()
        if preferred:
            self.prepare()
            self.wait()

    def prefetch(self, beside_active: bool) -> bool:
        """Come early, but never beside another component in use."""
        if beside_active:
            return False
        try:
            self.prepare()
        except torch.OutOfMemoryError:
            return False
        return True

    @property
    def device_bytes(self) -> int:
        """Device bytes of weights during a use."""
        return self._mover.size_bytes

    def misplaced(self) -> list[str]:
        """Return the weights that other code has exchanged; a use in another dtype exchanges them itself."""
        return self._mover.exchanged() if self._undo_cast is None else []

    def host_weights(self, names: Set[str] | None = None) -> dict[str, Tensor]:
        """Return the weights on the host by name, for edits in place; nothing stays on the device meanwhile.

        `names` are those that will be edited; None: any may be.
        """
        self._restore_dtype()
        return self._mover.host_weights(names)

    def origins(self) -> dict[str, Tensor]:
        """Return the weights as their checkpoint file has them, as far as it is mapped."""
        return {name: origin for parcel in self._mover.parcels() for name, origin in parcel.origins().items()}

    def give_back_pins(self) -> int:
        """Move the weights off page-locked memory, between uses; return its bytes."""
        return unpin(self._mover.parcels(), self._store)

    def detach(self) -> None:
        """Leave the weights in the module, on the host."""
        self._restore_dtype()
        self._mover.detach()

    def _restore_dtype(self) -> None:
        if self._undo_cast is not None:
            self._undo_cast()
            self._undo_cast = None
