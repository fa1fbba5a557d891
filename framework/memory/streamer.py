"""Streams the layers of a component through a ring while it runs: events only, no wait of the host. Imports torch.

Inside a use every layer has its weights exactly from the start of its call, after the event of their copy, to its end;
residents from their first call on. Nothing is allocated between `start` and `finish`.
"""

from collections.abc import Iterable, Sequence, Set
from functools import partial

from torch import Tensor, nn

from framework.errors import StageError
from framework.memory.courier import Courier
from framework.memory.host_table import HostTable
from framework.memory.layer_hooks import hook_layers, hook_passes
from framework.memory.mover import Held, Mover, changed_weight
from framework.memory.order import CallOrder
from framework.memory.parcel import Parcel, host_weights, install
from framework.memory.ring import Ring, Slot
from framework.memory.stream_layers import ResidentLayer, StreamedLayer


class Streamer:
    """One layerwise component. Build it with `framework.memory.layerwise.attach_streamer`."""

    def __init__(
        self,
        component: str,
        module: nn.Module,
        courier: Courier,
        ring: Ring,
        layers: Sequence[StreamedLayer | ResidentLayer],
        rest: Sequence[Held],
        tables: Sequence[HostTable],
        *,
        depth: int,
        keep: bool = False,
        park: bool = False,
        permanent: bool = False,
    ) -> None:
        """`keep`: ring and residents stay from the first use on. `permanent`: residents come when they are placed and
        have no copy on the host, and so does what lies outside the layers, unless it is to `park`."""
        self.component = component
        self._platform, self._courier, self._ring = courier.platform, courier, ring
        self._layers = {layer.index: layer for layer in layers}
        self._streamed = [layer for layer in layers if isinstance(layer, StreamedLayer)]
        self._residents = [layer.held for layer in layers if isinstance(layer, ResidentLayer)]
        self._rest = Mover(courier, rest)
        self._tables = tuple(tables)
        self._ahead, self._keep, self._park, self._permanent = depth > 0, keep, park, permanent
        num_slots = min(depth + 1, len(self._streamed))
        ring.fit(self, max((layer.parcel.size_bytes for layer in self._streamed), default=0), num_slots)
        streamed = [layer.index for layer in self._streamed]
        self._order = CallOrder(sorted(self._layers), streamed, num_slots)
        self._active = False
        self._unsent: set[int] = set()
        self._all: Mover | None = None
        for layer in self._streamed:
            layer.evict = partial(self._release, layer)
        self._handles = hook_layers(layers, self._enter, self._leave, self._enter_resident)
        self._handles += hook_passes(module, self._order)

    @property
    def device_bytes(self) -> int:
        """Device bytes of weights during a use: ring, residents and what lies outside the layers."""
        residents = sum(held.parcel.size_bytes for held in self._residents)
        return self._ring.size_bytes + residents + self._rest.size_bytes

    @property
    def idle_bytes(self) -> int:
        """Device bytes of weights between uses."""
        if self._keep:
            return self.device_bytes
        return 0 if self._park else self._rest.size_bytes

    @property
    def kept_ring_bytes(self) -> int:
        """Device bytes of the ring between uses."""
        return self._ring.size_bytes if self._keep else 0

    @property
    def brings_residents(self) -> bool:
        """Whether residents come with a use."""
        return not all(held.settled for held in self._residents)

    @property
    def fits_beside(self) -> bool:
        """Whether it may start while another component runs: it brings no residents, and a shared ring is ready."""
        return not self.brings_residents and not self._ring.must_grow()

    @property
    def active(self) -> bool:
        return self._active

    def place(self) -> None:
        """Bring what stays on the device between uses."""
        if self._permanent:
            for held in self._residents:
                held.settle()
        if not self._park:
            if self._permanent:
                self._rest.settle()
            self._rest.start()
            self._rest.install()

    def exchanged(self) -> list[str]:
        """Return the names of entries that other code has put something else into."""
        names = self._rest.exchanged()
        if self._all is not None:
            return names + self._all.exchanged()
        names += [name for held in self._residents for name in held.exchanged()]
        waiting = (layer.parcel for layer in self._streamed if layer.slot is None or not layer.slot.busy)
        return names + [name for parcel in waiting for name in parcel.exchanged(parcel.idle)]

    # The use

    def start(self) -> None:
        """Reserve all memory of a use and start the first copies. When anything fails the component is idle again."""
        if self._active or self._all is not None:
            return
        self._active = True
        try:
            self._ring.open(self, self._forget_slots)
            for held in self._residents:
                held.reserve()
            self._courier.follow_compute()
            self._rest.start()
            self._order.start_use()
            self._unsent = {i for i, layer in self._layers.items() if _is_unsent(layer)}
            self._advance()
            if self._ahead and self._ring.shared(self):
                self._ring.hungry[self] = self._advance
        except BaseException:
            self._close(keep=False)
            raise

    def wait(self) -> None:
        """Put what lies outside the layers in place; layers come with their calls."""
        self._rest.install()

    def finish(self) -> None:
        """End the use: the ring and, unless they are kept, the residents are given up.

        Raises `ChangedWeight` when a weight was written to on the device; the component is idle all the same.
        """
        if not self._active:
            return
        self._order.finish_use()
        changed = self._rest.changed() + self._close(self._keep)
        if changed:
            raise changed_weight(self.component, changed)

    def expect_steps(self, done: int, total: int) -> None:
        """`done` of `total` steps of the use are over: what is not needed after the last one is not fetched again."""
        if self._active and self._all is None:
            self._order.expect_steps(done, total)

    def forget_length(self) -> None:
        """Keep what was learned of a pass, and forget how many a use has."""
        self._order.forget_length()

    def _close(self, keep: bool) -> list[str]:
        self._active = False
        self._ring.hungry.pop(self, None)
        self._courier.let_compute_follow()
        for layer in self._streamed:
            install(layer.parcel.idle)
            if layer.slot is not None:
                self._release(layer)
        if self._park:
            self._rest.drop()
        return [] if keep else self._give_up()

    def _give_up(self) -> list[str]:
        """Let go of ring and residents."""
        self._forget_slots()
        self._ring.close(self)
        return [name for held in self._residents for name in held.drop()]

    # Around weight edits, compilation and the end

    def load_all(self) -> None:
        """Bring every layer to the device and keep it there until `release_all`; streaming pauses."""
        if self._all is not None:
            return
        self.release_all()
        everything = [Held(self._courier, layer.parcel) for layer in self._streamed]
        self._all = Mover(self._courier, [*everything, *self._residents])
        try:
            for mover in (self._all, self._rest):
                mover.start()
                mover.install()
        except BaseException:
            self.release_all()
            raise

    def release_all(self) -> None:
        """Undo `load_all`, or end a use: nothing of the component stays on the device.

        Raises `ChangedWeight` as `finish` does, after everything has left.
        """
        everything, self._all = self._all, None
        changed = everything.drop() if everything is not None else []
        self._order.start_use()
        changed += self._close(keep=False) + self._rest.drop()
        if changed:
            raise changed_weight(self.component, changed)

    def detach(self) -> None:
        """Take the hooks off and leave the weights in their modules, on the host."""
        try:
            self.release_all()
        finally:
            self._ring.leave(self)
            for handle in self._handles:
                handle.remove()
            for held in self._residents:
                held.lift()
            self._rest.lift()
            for parcel in self.parcels():
                parcel.leave()
            for table in self._tables:
                table.detach()

    def host_weights(self, names: Set[str] | None = None) -> dict[str, Tensor]:
        """Take off the device what has a master on the host and return all masters, by dotted name, for edits in place.

        The next use brings them as they are then. `names` says which will be edited (None: any may be); only what
        travels with those leaves a mapped file.
        """
        self.release_all()
        found = host_weights(self.parcels(), names)
        for table in self._tables:
            if names is None or not names.isdisjoint(table.names):
                found |= dict.fromkeys(table.names, table.editable())
        return found

    def parcels(self) -> Iterable[Parcel]:
        """Every parcel of the component: the bytes of its blob are the master."""
        yield from (layer.parcel for layer in self._streamed)
        yield from (held.parcel for held in self._residents)
        yield from self._rest.parcels()

    # Inside a use: called for every layer of every step

    def _enter(self, layer: StreamedLayer) -> None:
        if self._all is not None:
            return
        slot = layer.slot or self._load_now(layer)
        platform = self._platform
        if slot.delivery is not None:
            slot.ready = self._courier.complete(slot.delivery)
            slot.delivery, slot.version = None, slot.memory._version
        platform.wait_event(platform.current_stream(), slot.ready)
        bound = layer.bound.get(slot.index)
        if bound is None:
            bound = layer.bound[slot.index] = layer.parcel.bind(slot.memory)
        for holder, tensors in bound:
            holder.update(tensors)
        slot.busy = True
        self._order.call(layer.index)

    def _leave(self, layer: StreamedLayer) -> None:
        slot = layer.slot
        if slot is None or slot.delivery is not None:  # streaming is paused, or the call never got its weights
            return
        platform = self._platform
        for holder, tensors in layer.parcel.idle:
            holder.update(tensors)
        slot.done = platform.record_event(platform.current_stream())
        slot.busy = False
        if slot.memory._version != slot.version:
            raise changed_weight(self.component, layer.parcel.changed(slot.memory))
        if layer.index not in self._order.window:
            self._release(layer)
        self._advance()
        if self._ring.hungry:
            self._ring.hungry.pop(self, None)
            self._ring.feed()

    def _enter_resident(self, layer: ResidentLayer) -> None:
        if self._all is not None:
            return
        if not layer.held.installed:
            if not self._active:
                raise self._outside(layer.held.parcel)
            self._send(layer)
            layer.held.install()
        self._order.call(layer.index)

    # Loading and releasing

    def _advance(self) -> None:
        """Start the copies of what comes next, in the order of need, as far as there are slots."""
        if self._unsent:
            self._send_residents()
        if self._ahead:
            window = self._order.window
            for index in window:
                if not self._load_ahead(self._layers[index], window):
                    return

    def _send_residents(self) -> None:
        """Send residents, but not ahead of a streamed layer that is needed first and has no slot yet."""
        window = self._order.window if self._ahead else ()
        for index in self._order.ahead():
            layer = self._layers[index]
            if isinstance(layer, ResidentLayer):
                self._send(layer)
            elif not self._load_ahead(layer, window):
                return

    def _load_ahead(self, layer: "StreamedLayer | ResidentLayer", window: tuple[int, ...]) -> bool:
        """Load a streamed layer of `window` unless it is there; return whether it is."""
        assert isinstance(layer, StreamedLayer)
        if layer.slot is None:
            if layer.index not in window:
                return False
            slot = self._ring.take() or self._ring.take_back(self, window)
            if slot is None:
                return False
            self._load(layer, slot)
        return True

    def _load_now(self, layer: StreamedLayer) -> Slot:
        """Load a layer that reality wants and the order did not expect."""
        if not self._active:
            raise self._outside(layer.parcel)
        self._ring.hungry.pop(self, None)
        slot = self._ring.take() or self._ring.take_back(None, ())
        if slot is None:
            raise StageError(
                f"component '{self.component}': layer '{layer.parcel.name}' is called inside a call of another layer; "
                f"raise layerwise.{self.component}.prefetch above {len(self._ring.slots) - 1}"
            )
        self._load(layer, slot)
        return slot

    def _load(self, layer: StreamedLayer, slot: Slot) -> None:
        try:
            courier, parcel, memory = self._courier, layer.parcel, slot.memory
            if courier.stages(parcel.blob):
                slot.delivery = courier.begin(self.component, parcel.name, parcel.blob, memory, slot.done)
            else:
                if slot.done is not None:
                    self._platform.wait_event(courier.stream, slot.done)
                slot.ready = courier.send(self.component, parcel.name, parcel.blob, memory)
        except BaseException:
            self._ring.give_back(slot)
            raise
        slot.version = slot.memory._version
        slot.owner, slot.occupant, slot.evict, layer.slot = self, layer.index, layer.evict, slot

    def _release(self, layer: StreamedLayer) -> None:
        slot, layer.slot = layer.slot, None
        assert slot is not None
        self._ring.give_back(slot)

    def _send(self, layer: ResidentLayer) -> None:
        layer.held.send()
        self._unsent.discard(layer.index)

    def _forget_slots(self) -> None:
        for layer in self._streamed:
            layer.bound.clear()

    def _outside(self, parcel: Parcel) -> StageError:
        return StageError(f"component '{self.component}': layer '{parcel.name}' was called outside a use")


def _is_unsent(layer: StreamedLayer | ResidentLayer) -> bool:
    return isinstance(layer, ResidentLayer) and not layer.held.sent
