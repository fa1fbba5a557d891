"""Moves parcels whole: device memory, one copy each, and the way back, which costs nothing. Imports torch.

The copy on the host is the master: leaving the device drops the device's copy, except for buffers that were written to.
"""

from collections.abc import Sequence, Set

import torch
from torch import Tensor

from framework.memory.blobs import Blob, Source
from framework.memory.courier import Courier
from framework.memory.parcel import Bound, ChangedWeight, Parcel, host_weights, install
from framework.platforms.protocol import EventHandle


class Held:
    """One parcel with device memory of its own, from `reserve` to `drop`."""

    __slots__ = ("_bound", "_memory", "_ready", "_version", "courier", "installed", "parcel", "settled", "writable")

    def __init__(self, courier: Courier, parcel: Parcel, writable: bool = False) -> None:
        self.courier, self.parcel, self.writable = courier, parcel, writable
        self.installed = self.settled = False
        self._memory: Tensor | None = None
        self._ready: EventHandle | None = None
        self._bound: Bound | None = None
        self._version = 0

    @property
    def reserved(self) -> bool:
        return self._memory is not None

    @property
    def sent(self) -> bool:
        return self._bound is not None

    def reserve(self) -> None:
        """Take device memory; raises what the platform raises when there is none."""
        if self._memory is None:
            self._memory = self.courier.reserve(self.parcel.size_bytes)

    def send(self) -> None:
        """Start the copy."""
        if self._bound is None:
            assert self._memory is not None, "sent before it was reserved"
            parcel = self.parcel
            self._ready = self.courier.send(parcel.component, parcel.name, parcel.blob, self._memory)
            self._version = self._memory._version
            self._bound = parcel.bind(self._memory)

    def install(self) -> None:
        """Let compute wait for the copy, and put the weights in place."""
        if not self.installed:
            assert self._bound is not None, "installed before it was sent"
            platform = self.courier.platform
            platform.wait_event(platform.current_stream(), self._ready)
            install(self._bound)
            self.installed = True

    def settle(self) -> None:
        """Come for good: the device's copy is the master from now on, and nothing is kept on the host."""
        if self.settled:
            return
        self.reserve()
        self.courier.follow_compute()
        self.send()
        self.install()
        self.courier.platform.synchronize(self._ready)
        assert self._memory is not None
        assert self._bound is not None
        self.parcel.hand_over(self._memory, self._bound)
        self.settled = True

    def lift(self) -> None:
        """Undo `settle`: copy the weights back to the host, where they are as they would be without it."""
        if not self.settled:
            return
        assert self._memory is not None
        host = torch.empty(self.parcel.size_bytes, dtype=torch.uint8)
        blob = Blob(self.parcel.size_bytes, "pageable", (Source(0, host),), host)
        self.courier.fetch(self.parcel.component, self.parcel.name, blob, self._memory)
        self.parcel.take_back(blob)
        self.settled = False
        self.drop()

    def changed(self) -> list[str]:
        """Return the names of weights that were written to on the device and may not be."""
        memory = self._memory
        if self.settled or self.writable or not self.installed or memory is None or memory._version == self._version:
            return []
        return self.parcel.changed(memory)

    def exchanged(self) -> list[str]:
        """Return the names of entries that hold something else than was put there; a forward may renew a buffer."""
        if not self.installed:
            return self.parcel.exchanged(self.parcel.idle)
        assert self._bound is not None
        return [] if self.writable else self.parcel.exchanged(self._bound)

    def drop(self) -> list[str]:
        """Give up the device's copy; return the names of weights that were written to and may not be.

        The caller has let compute wait for the copies (`Courier.let_compute_follow`). What has settled stays.
        """
        if self.settled:
            return []
        memory, changed = self._memory, self.changed()
        if self.writable and self.installed and memory is not None and memory._version != self._version:
            self.courier.fetch(self.parcel.component, self.parcel.name, self.parcel.blob, memory)
        self.parcel.clear()
        self.installed = False
        self._memory = self._ready = self._bound = None
        return changed


class Mover:
    """Parcels that come and go together, all or none."""

    def __init__(self, courier: Courier, parcels: Sequence[Held]) -> None:
        self._courier = courier
        self._held = tuple(parcels)

    def parcels(self) -> list[Parcel]:
        return [held.parcel for held in self._held]

    @property
    def size_bytes(self) -> int:
        """Device bytes while the parcels are there."""
        return sum(held.parcel.size_bytes for held in self._held)

    @property
    def started(self) -> bool:
        return all(held.sent for held in self._held)

    def start(self) -> None:
        """Reserve all and start the copies; when anything fails, nothing is left on the device."""
        if self.started:
            return
        try:
            for held in self._held:
                held.reserve()
            self._courier.follow_compute()
            for held in self._held:
                held.send()
        except BaseException:
            self.drop()
            raise

    def settle(self) -> None:
        """Bring for good what is never written to, without a copy on the host; the rest as `start` does."""
        for held in self._held:
            if not held.writable:
                held.settle()

    def lift(self) -> None:
        """Undo `settle`."""
        for held in self._held:
            held.lift()

    def install(self) -> None:
        """Let compute wait for the copies and put the weights in place."""
        for held in self._held:
            held.install()

    def changed(self) -> list[str]:
        """Return the names of weights that were written to on the device and may not be."""
        return [name for held in self._held for name in held.changed()]

    def exchanged(self) -> list[str]:
        """Return the names of entries that other code has put something else into."""
        return [name for held in self._held for name in held.exchanged()]

    def drop(self) -> list[str]:
        """Leave the device; return the names of weights that were written to and may not be."""
        self._courier.let_compute_follow()
        return [name for held in self._held for name in held.drop()]

    def host_weights(self, names: Set[str] | None = None) -> dict[str, Tensor]:
        """Leave the device and return the weights on the host, by dotted name, for edits in place.

        The next start brings them as they are then; `names` as in `Streamer.host_weights`.
        """
        self.drop()
        return host_weights(self.parcels(), names)

    def detach(self) -> None:
        """Leave the weights in their modules, on the host."""
        self.drop()
        for held in self._held:
            held.parcel.leave()


def changed_weight(component: str, names: Sequence[str]) -> ChangedWeight:
    """Return the error that names weights changed on the device."""
    return ChangedWeight(
        f"component '{component}': {', '.join(repr(name) for name in names)} changed on the device outside a weight "
        f"edit; the change would be lost with the device's copy (component_residency.{component}=resident keeps it)"
    )
