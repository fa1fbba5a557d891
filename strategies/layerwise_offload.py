"""Strategy `layerwise-offload`: layers are streamed through a ring of device slots while they run. Imports torch."""

from collections.abc import Set

import torch
from torch import Tensor, nn

from framework.errors import ConfigError
from framework.memory.casting import main_dtype
from framework.memory.layers import find_stacks
from framework.memory.layerwise import attach_streamer, placed_knobs
from framework.memory.resources import Resources, make_resources
from framework.memory.unpin import unpin
from framework.registry import register_strategy
from framework.spec import Placement


@register_strategy("layerwise-offload")
class LayerwiseOffload:
    """Holds a ring and the resident layers for the time of a use; what lies outside the layers stays."""

    def __init__(
        self,
        component: str,
        module: nn.Module,
        placement: Placement,
        device: torch.device,
        resources: Resources | None = None,
    ) -> None:
        self.component = component
        self._own_dtype = main_dtype(module)
        shared = resources or make_resources(device)
        self._store = shared.store
        stacks = find_stacks(component, module, shared.layers.get(component, ()))
        knobs = placed_knobs(placement, stacks, park=component in shared.parked)
        self._streamer = attach_streamer(component, module, knobs, shared, stacks)

    def prepare(self, dtype: torch.dtype | None = None) -> None:
        """Reserve the ring and start the first copies. Refuses a dtype that the streamed bytes do not have."""
        if dtype is not None and dtype != self._own_dtype:
            raise ConfigError.of(
                f"component_residency.{self.component}",
                f"layerwise-offload streams weights as loaded ({self._own_dtype}); this use wants {dtype}",
                hint=f"set pipeline.components.{self.component}.dtype, or use component-offload",
            )
        self._streamer.start()

    def wait(self) -> None:
        self._streamer.wait()

    def finish_use(self) -> None:
        self._streamer.finish()

    def finish_request(self, preferred: bool) -> None:
        """Be idle; the head of a preferred component is fetched, for the first real request."""
        self._streamer.finish()
        if preferred and not self._streamer.brings_residents:
            self._streamer.start()

    def expect_steps(self, done: int, total: int) -> None:
        """`done` of `total` steps of the use are over."""
        self._streamer.expect_steps(done, total)

    def forget_length(self) -> None:
        """The uses to come have more passes than those so far: keep the order of calls, not how many there were."""
        self._streamer.forget_length()

    def prefetch(self, beside_active: bool) -> bool:
        """Fetch the head early; beside another component only what brings no residents."""
        if beside_active and not self._streamer.fits_beside:
            return False
        try:
            self._streamer.start()
        except torch.OutOfMemoryError:
            return False
        return True

    def place(self) -> None:
        """Bring what lies outside the layers."""
        self._streamer.place()

    @property
    def device_bytes(self) -> int:
        """Device bytes of weights during a use, its ring included."""
        return self._streamer.device_bytes

    @property
    def idle_bytes(self) -> int:
        """Device bytes of weights between uses."""
        return self._streamer.idle_bytes

    @property
    def kept_ring_bytes(self) -> int:
        """Device bytes of the ring between uses; components that share one count it once."""
        return self._streamer.kept_ring_bytes

    def misplaced(self) -> list[str]:
        """Return the weights that other code has exchanged."""
        return self._streamer.exchanged()

    def load_all(self) -> None:
        """Bring every layer to the device until `release_all`, for compilation and edits."""
        self._streamer.load_all()

    def release_all(self) -> None:
        self._streamer.release_all()

    def host_weights(self, names: Set[str] | None = None) -> dict[str, Tensor]:
        """Return the weights on the host by name, for edits in place; nothing stays on the device meanwhile.

        `names` are those that will be edited; None: any may be.
        """
        return self._streamer.host_weights(names)

    def origins(self) -> dict[str, Tensor]:
        """Return the weights as their checkpoint file has them, as far as it is mapped."""
        return {name: origin for parcel in self._streamer.parcels() for name, origin in parcel.origins().items()}

    def give_back_pins(self) -> int:
        """Move the weights off page-locked memory, between uses; return its bytes."""
        return unpin(self._streamer.parcels(), self._store)

    def detach(self) -> None:
        """Take the hooks off and leave the weights in the module, on the host."""
        self._streamer.detach()
