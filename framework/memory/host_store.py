"""Which tier each layer's bytes get on the host: pinned, pageable or mapped, inside the budgets. Imports torch."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial

import torch
from torch import Tensor

from framework.memory.blobs import Blob, Layout, fill, lay_out, leave_mapped, take_off_file
from framework.memory.host_budget import HostMemory, read_host_memory
from framework.memory.host_ledger import HostLedger
from framework.memory.mapped_files import MappedFiles
from framework.memory.ownership import Weight
from framework.memory.parcel import Parcel
from framework.memory.pin_ledger import GIB, PinLedger
from framework.platforms.protocol import Platform

COPY_RESERVE_BYTES = 4 * GIB
PINNED, MAPPED = "pinned", "mapped"
CAST = "only weights whose dtype is the file's can stay in the file; raise budget.host, or take the file's dtype"
EDIT = "an edit needs them off the checkpoint's file; raise budget.host"


@dataclass(frozen=True, slots=True)
class HostStore:
    """Makes parcels. `is_mapped` says whether a weight still lies in its checkpoint file (its dtype is the file's).

    `ledger` bounds page-locked memory, `host` all memory of the weights' own; beyond it what can stays in the file.
    `tiers` holds what a plan says of a component: `pageable` is not pinned, `mapped` stays in its file where it can.
    """

    platform: Platform
    ledger: PinLedger
    is_mapped: Callable[[Tensor], bool] = lambda tensor: False
    memory: Callable[[], HostMemory] = read_host_memory
    host: HostLedger = field(default_factory=HostLedger)
    tiers: Mapping[str, str] = field(default_factory=dict)

    def look_at_files(self) -> None:
        """Find out anew which files are mapped: to be called after a component was loaded, before its parcels."""
        if isinstance(self.is_mapped, MappedFiles):
            self.is_mapped.refresh()

    def make_parcel(
        self, component: str, name: str, weights: Sequence[Weight], writable: bool = False, passing: bool = False
    ) -> Parcel:
        """Take `weights` out of their modules into a parcel, leaving placeholders.

        `writable`: for buffers. Their bytes may be written back, so they get memory of their own; and between uses the
        modules have them on the host, for pipelines read some (a VAE's latent statistics) outside any call.
        `passing`: on the way to the device for good, so nothing is copied, pinned or booked here.
        """
        with torch.inference_mode(False), torch.no_grad():  # the host's bytes are written to in edits
            layout = lay_out(weights)
            blob = leave_mapped(layout) if passing else self._keep(component, name, weights, layout, writable)
            origins = [self._origin(weight) for weight in weights]
            parcel = Parcel(component, name, weights, layout, blob, self.platform.device, origins)
            parcel.off_file = partial(self._off_file, component, name)
            if writable:
                parcel.idle = parcel.bind_host()
            parcel.clear()
            return parcel

    def _origin(self, weight: Weight) -> Tensor | None:
        """The weight as its checkpoint file has it, where the file is mapped: it costs no memory to remember."""
        if isinstance(self.is_mapped, MappedFiles) and not self.is_mapped.known:
            return None
        leaf = weight.recipe.leaves[0]
        return leaf if len(weight.recipe.leaves) == 1 and self.is_mapped(leaf) else None

    def hold_table(self, component: str, name: str, table: Tensor) -> None:
        """Book a table that stays on the host as it is. Raises `PlanError` where `budget.host` has no room for it."""
        if not self.is_mapped(table):
            self.host.require(component, name, table.nbytes, CAST)

    def release_component(self, component: str) -> None:
        """Give back all that is booked for `component`."""
        self.ledger.release_component(component)
        self.host.release_component(component)

    def _keep(self, component: str, name: str, weights: Sequence[Weight], layout: Layout, writable: bool) -> Blob:
        leaves = [leaf for weight in weights for leaf in weight.recipe.leaves]
        loose_bytes = sum(leaf.nbytes for leaf in leaves if not self.is_mapped(leaf))
        mapped, tier = any(self.is_mapped(leaf) for leaf in leaves), self.tiers.get(component, PINNED)
        may_stay = mapped and not writable
        if may_stay and (tier == MAPPED or not self.host.book(component, name, layout.size_bytes)):
            self.host.require(component, name, loose_bytes, CAST)
            return leave_mapped(layout)
        self.host.require(component, name, layout.size_bytes, CAST)
        pinned = tier == PINNED and self.platform.pins
        if pinned and self.ledger.request(component, name, layout.size_bytes):
            memory = self.platform.allocate_pinned(layout.size_bytes)
            if memory is not None:
                return fill(layout, memory, "pinned")
            self.ledger.refuse(component, name)
        if writable:
            return fill(layout, torch.empty(layout.size_bytes, dtype=torch.uint8), "pageable")
        if not mapped:
            return Blob(layout.size_bytes, "pageable", layout.sources)  # it is in memory already: nothing to gain
        if layout.size_bytes + COPY_RESERVE_BYTES <= self.memory().available_bytes:
            return fill(layout, torch.empty(layout.size_bytes, dtype=torch.uint8), "pageable")
        self.host.book(component, name, loose_bytes)
        return leave_mapped(layout)

    def _off_file(self, component: str, name: str, blob: Blob) -> Blob:
        self.host.require(component, name, blob.size_bytes, EDIT)
        return take_off_file(blob)
