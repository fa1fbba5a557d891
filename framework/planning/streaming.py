"""One use of a component in time: the streamer's ring, residents and head, or everything at once. No torch.

A pass is one call: `(layer, seconds, launches)` in order, layer -1 for work outside the layers. Passes are followed
until they repeat, then multiplied. A layer that runs twice in a pass is taken as copied twice.
"""

from collections.abc import Sequence, Set
from dataclasses import dataclass

from framework.planning.clock import DEVICE, Clock

Pass = tuple[tuple[int, float, int], ...]
SAME = 1e-9
"""Two passes repeat where their growth differs by less than this share."""


@dataclass(frozen=True, slots=True)
class Traffic:
    """What moves for a component: each layer's bytes and tier (0 bytes: it has none of its own), and the rest's."""

    layer_bytes: tuple[int, ...]
    tiers: tuple[str, ...]
    rest: tuple[tuple[int, str], ...] = ()


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
        self._free = [0.0] * slots
        self._ready = dict.fromkeys((i for i in own if i not in self._unsent), 0.0)
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

    def skip(self, seconds: float) -> None:
        """Later passes have gone by."""
        self._free = [time + seconds for time in self._free]
        self._ready = {layer: time + seconds for layer, time in self._ready.items()}

    def _enter(self, layer: int) -> None:
        if self._traffic.layer_bytes[layer]:
            found = self._ready.get(layer)
            if found is None:
                found = self._load_now(layer)
            self._clock.wait_for(found)
        self._at += 1
        self._next = max(self._next, self._at)

    def _load_now(self, layer: int) -> float:
        if layer in self._unsent:
            return self._send(layer, 0.0)
        if not self._free:
            self._free.append(self._ready.pop(next(key for key in self._ready if key in self._streamed)))
        return self._send(layer, self._free.pop())

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

    def _send(self, layer: int, free: float) -> float:
        self._unsent.discard(layer)
        arrived = self._clock.send(self._traffic.layer_bytes[layer], self._traffic.tiers[layer], free)
        self._ready[layer] = arrived
        return arrived

    def _turn(self, order: tuple[int, ...]) -> None:
        """A pass begins; where it is not the one expected, what was loaded for that is of no use."""
        if order != self._order:
            self._order = order
            self._at = 0
            for layer in [layer for layer in self._ready if layer in self._streamed and not self._whole]:
                self._free.append(self._ready.pop(layer))
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
