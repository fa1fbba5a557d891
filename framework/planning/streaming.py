"""One use of a component in time: the streamer's ring, residents and head, or everything at once. No torch.

A pass is one call: `(layer, seconds, launches)` in order, layer -1 for work outside the layers. Passes are followed
until they repeat, then multiplied. A layer that runs twice in a pass is taken as copied twice.
"""

from collections.abc import Sequence, Set
from dataclasses import dataclass

from framework.planning.clock import DEVICE, PINNED, Clock
from framework.planning.rates import STAGING_BUFFERS

Pass = tuple[tuple[int, float, int], ...]
SAME = 1e-9
"""Two passes repeat where their growth differs by less than this share."""


@dataclass(frozen=True, slots=True)
class Traffic:
    """What moves for a component: each layer's bytes and tier (0 bytes: it has none of its own), and the rest's."""

    layer_bytes: tuple[int, ...]
    tiers: tuple[str, ...]
    rest: tuple[tuple[int, str], ...] = ()


@dataclass(slots=True, eq=False)
class Delivery:
    """A copy through the staging buffers into memory that is free at `free`; it ends when its layer is called."""

    size_bytes: int
    tier: str
    free: float
    sent_bytes: int = 0


class Ring:
    """The streamer's order of copies: what comes next is loaded as far as there are slots."""

    def __init__(self, clock: Clock, traffic: Traffic, streamed: Set[int], depth: int) -> None:
        self._clock, self._traffic = clock, traffic
        self._streamed = frozenset(layer for layer in streamed if traffic.layer_bytes[layer])
        own = [i for i, size in enumerate(traffic.layer_bytes) if size and i not in self._streamed]
        self._unsent = {i for i in own if traffic.tiers[i] != DEVICE}
        slots = min(depth + 1, len(self._streamed))
        self._whole = slots == len(self._streamed)  # all have a slot of their own
        self._ahead = depth > 0
        self.followed = False
        """Whether a small copy follows each pass: it waits for what has been sent ahead, and compute for it."""
        self._free = [0.0] * slots
        self._ready: dict[int, float | Delivery] = dict.fromkeys((i for i in own if i not in self._unsent), 0.0)
        self._waiting: list[Delivery] = []
        self._end: int | None = None  # where it is known that nothing more is called
        self._order: tuple[int, ...] = tuple(range(len(traffic.layer_bytes)))
        self._at = self._next = 0  # the next call, and the next layer to be loaded, counted through all passes

    def start(self) -> None:
        self._clock.follow_compute()
        self._advance()

    def run(self, steps: Pass, last: bool = False) -> None:
        """Follow one pass; after the `last` one nothing is fetched for another."""
        clock, streamed, ready = self._clock, self._streamed, self._ready
        self._turn(tuple(step[0] for step in steps if step[0] >= 0))
        self._end = self._at + len(self._order) if last else None
        for layer, seconds, launches in steps:
            if layer >= 0:
                self._enter(layer)
            clock.run(seconds, launches)
            if layer in streamed:
                if not self._whole:
                    self._free.append(clock.compute)
                    del ready[layer]
                self._advance()
        if self.followed and not last:
            clock.let_compute_follow()

    def skip(self, seconds: float) -> None:
        """Later passes have gone by."""
        self._free = [time + seconds for time in self._free]
        for delivery in self._waiting:
            delivery.free += seconds
        for layer, time in self._ready.items():
            if not isinstance(time, Delivery):
                self._ready[layer] = time + seconds

    def _enter(self, layer: int) -> None:
        if self._traffic.layer_bytes[layer]:
            found = self._ready.get(layer)
            if found is None:
                found = self._load_now(layer)
            if isinstance(found, Delivery):
                found = self._ready[layer] = self._complete(found)
            self._clock.wait_for(found)
        self._at += 1
        self._next = max(self._next, self._at)

    def _load_now(self, layer: int) -> float | Delivery:
        if layer in self._unsent:
            return self._send(layer, 0.0)
        if not self._free:
            self._give_up(next(key for key in self._ready if key in self._streamed))
        return self._send(layer, self._free.pop())

    def _give_up(self, layer: int) -> None:
        """What was loaded is of no use; what has been sent of it is ordered before all later copies."""
        found = self._ready.pop(layer)
        if isinstance(found, Delivery):
            self._waiting.remove(found)
            found = self._clock.copy if found.sent_bytes else found.free
        self._free.append(found)

    def _advance(self) -> None:
        """Send what comes next, in the order of need."""
        if self._whole and not self._unsent and all(layer in self._ready for layer in self._streamed):
            return
        order, ready = self._order, self._ready
        length = len(order)
        limit = self._at + 2 * length if self._end is None else self._end
        position = self._next
        while position < limit:
            layer = order[position % length]
            if layer in self._streamed:
                if layer not in ready:
                    if not self._ahead or not self._free:
                        break
                    self._send(layer, self._free.pop())
            elif layer in self._unsent:
                self._send(layer, 0.0)
            position += 1
        self._next = position

    def _send(self, layer: int, free: float) -> float | Delivery:
        self._unsent.discard(layer)
        size, tier = self._traffic.layer_bytes[layer], self._traffic.tiers[layer]
        staged = layer in self._streamed and tier != PINNED and self._clock.rates.staging_bytes > 0
        self._ready[layer] = self._begin(Delivery(size, tier, free)) if staged else self._clock.send(size, tier, free)
        return self._ready[layer]

    def _begin(self, delivery: Delivery) -> Delivery:
        """Fill the buffers for the first that waits, if it has none, and stop: the host has other things to launch."""
        self._waiting.append(delivery)
        first = self._waiting[0]
        if not first.sent_bytes:
            first.sent_bytes = min(first.size_bytes, STAGING_BUFFERS * self._clock.rates.staging_bytes)
            self._clock.send(first.sent_bytes, first.tier, first.free)
        return delivery

    def _complete(self, delivery: Delivery) -> float:
        self._waiting.remove(delivery)
        rest = delivery.size_bytes - delivery.sent_bytes
        return self._clock.send(rest, delivery.tier, delivery.free) if rest else self._clock.copy

    def _turn(self, order: tuple[int, ...]) -> None:
        """A pass begins; where it is not the one expected, what was loaded for that is of no use."""
        if order != self._order:
            self._order = order
            self._at = 0
            for layer in [layer for layer in self._ready if layer in self._streamed and not self._whole]:
                self._give_up(layer)
            self._next = 1 if list(order) == sorted(order) else len(order)  # else nothing is right till the next pass


def repeat(clock: Clock, ring: Ring | None, steps: Pass, count: int, told: bool = False) -> None:
    """Run `count` passes alike: followed until one grows as the one before, then multiplied.

    `told`: a loop that says its steps, so that nothing is fetched again in its last one.
    """
    if ring is not None and told and count > 1:
        _follow(clock, ring, steps, count - 1)
        ring.run(steps, last=True)
    else:
        _follow(clock, ring, steps, count)


def _follow(clock: Clock, ring: Ring | None, steps: Pass, count: int) -> None:
    growth: tuple[float, ...] | None = None
    before = clock.times()
    for done in range(1, count + 1):
        if ring is None:
            for _, seconds, launches in steps:
                clock.run(seconds, launches)
        else:
            ring.run(steps)
        after = clock.times()
        grown = tuple(new - old for new, old in zip(after, before, strict=True))
        if growth is not None and _same(grown, growth) and done < count:
            moved = clock.skip(grown, count - done)
            if ring is not None:
                ring.skip(moved)
            return
        growth, before = grown, after


def _same(one: Sequence[float], other: Sequence[float]) -> bool:
    scale = max(abs(one[0]), abs(one[1]), 1e-12)
    return all(abs(a - b) <= SAME * scale for a, b in zip(one[:3], other[:3], strict=True)) and one[7] == other[7]
