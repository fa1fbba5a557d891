"""One device allocation: who wrote and read which of its bytes, and what is still on its way. No torch.

Order is kept per byte range, so that two slots of one buffer never look like a race. Records older than a write may
stay: whoever is ordered after the write is ordered after them too.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

from framework.platforms.sim.ledger import round_up
from framework.platforms.sim.streams import Clock, Stream, merge

if TYPE_CHECKING:
    from framework.platforms.sim.world import Device


_NOBODY: frozenset[int] = frozenset()


class Write(NamedTuple):
    lo: int
    hi: int
    stream: int
    sequence: int
    op: str


class Pending:
    """A copy that has been launched but whose bytes have not arrived.

    `land` brings them, once; `check` is called when the host first knows that the copy is done.
    """

    __slots__ = ("_land", "check", "hi", "lo", "sequence", "stream")

    def __init__(
        self, lo: int, hi: int, stream: Stream, land: Callable[[], None], check: Callable[[], None] | None = None
    ) -> None:
        self.lo, self.hi = lo, hi
        self.stream, self.sequence = stream.number, stream.sequence
        self._land: Callable[[], None] | None = land
        self.check = check

    @property
    def landed(self) -> bool:
        return self._land is None

    def land(self) -> None:
        action, self._land = self._land, None
        if action is not None:
            action()

    def drop(self) -> None:
        """Forget the bytes: their place has been given up."""
        self._land = None


class Block:
    """Memory of one device, booked by the caller and given back with its last tensor.

    `nbytes` is what was asked, the ledger holds granules; `ptr` is where the host keeps the numbers.
    """

    __slots__ = ("device", "nbytes", "pending", "ptr", "reads", "retired", "shared", "stream", "writes")

    def __init__(self, device: "Device", nbytes: int, ptr: int) -> None:
        self.device, self.nbytes, self.ptr = device, nbytes, ptr
        self.stream = device.current
        self.writes: list[Write] = []
        freed = device.freed.get(self.stream.number)
        if freed:  # the memory may have been somebody's before: come after all that stream had been given by then
            self.writes.append(Write(0, nbytes, self.stream.number, freed, "its earlier user"))
        self.reads: dict[tuple[int, int, int], tuple[int, str]] = {}
        self.pending: list[Pending] = []
        self.retired: list[tuple[int, int]] = []
        self.shared: frozenset[int] = _NOBODY  # streams named by record_stream

    def read(self, lo: int, hi: int, stream: Stream, op: str) -> None:
        """Check and note a read of bytes lo..hi by the operation now at the end of `stream`."""
        ordered = self._after_writes(lo, hi, stream, op, "reads")
        for start, end in self.retired:
            if start < hi and lo < end:
                self._race(f"{op} on {stream} reads bytes {max(lo, start)}..{min(hi, end)} that have been retired")
        if ordered and self.pending:
            self.settle(lo, hi)
        self.reads[stream.number, lo, hi] = (stream.sequence, op)

    def write(self, lo: int, hi: int, stream: Stream, op: str) -> None:
        """Check and note a write of bytes lo..hi by the operation now at the end of `stream`."""
        ordered = self._after_writes(lo, hi, stream, op, "overwrites")
        for (number, start, end), (sequence, reader) in self.reads.items():
            if start < hi and lo < end and not stream.knows(number, sequence):
                ordered = False
                self._race(f"{op} on {stream} overwrites bytes that {reader} on stream{number} may still read")
        if ordered and self.pending:
            self.settle(lo, hi)
        if self.retired:
            self.retired = _without(self.retired, lo, hi)
        writes = [record for record in self.writes if record.lo < lo or record.hi > hi]
        writes.append(Write(lo, hi, stream.number, stream.sequence, op))
        self.writes = writes

    def settle(self, lo: int, hi: int) -> None:
        """Let pending copies into lo..hi arrive; the caller is ordered after them."""
        for pending in self.pending:
            if pending.lo < hi and lo < pending.hi:
                pending.land()
        self.pending = [pending for pending in self.pending if not pending.landed]

    def retire(self, lo: int, hi: int) -> None:
        """Give up bytes lo..hi: reading them is an error until they are written again."""
        for pending in self.pending:
            if pending.lo < hi and lo < pending.hi:
                pending.drop()
        self.pending = [pending for pending in self.pending if not pending.landed]
        self.retired = [*_without(self.retired, lo, hi), (lo, hi)]

    def _after_writes(self, lo: int, hi: int, stream: Stream, op: str, verb: str) -> bool:
        ordered = True
        for record in self.writes:
            if record.lo < hi and lo < record.hi and not stream.knows(record.stream, record.sequence):
                ordered = False
                self._race(
                    f"{op} on {stream} {verb} bytes {record.lo}..{record.hi} written by {record.op} on "
                    f"stream{record.stream} without waiting for it"
                )
        return ordered

    def _race(self, text: str) -> None:
        self.device.world.report(f"{text} ({self.device.name}, {self.nbytes} bytes)")

    def __del__(self) -> None:
        # A destructor cannot raise: the world raises what is found here at its next operation or check.
        self.device.ledger.give_back(round_up(self.nbytes))
        self.device.freed[self.stream.number] = self.stream.sequence
        for pending in self.pending:
            pending.drop()
        if len(self.device.streams) > 1:
            self._check_freed()

    def _check_freed(self) -> None:
        """Memory goes back to the stream it came from, which may hand it out before another stream is done."""
        uses = [(record.stream, record.sequence, record.op) for record in self.writes]
        uses += [(number, sequence, op) for (number, _, _), (sequence, op) in self.reads.items()]
        others = [use for use in uses if use[0] != self.stream.number and use[0] not in self.shared]
        if not others:
            return
        known: Clock = dict(self.device.world.host_clock)
        merge(known, self.stream.clock)
        for number, sequence, op in others:
            if known.get(number, 0) < sequence:
                self.device.world.defer(
                    f"{self.nbytes} bytes allocated on {self.stream} of {self.device.name} are freed while {op} on "
                    f"stream{number} may still use them"
                )


def _without(ranges: list[tuple[int, int]], lo: int, hi: int) -> list[tuple[int, int]]:
    """`ranges` less lo..hi."""
    rest = []
    for start, end in ranges:
        if end <= lo or hi <= start:
            rest.append((start, end))
            continue
        if start < lo:
            rest.append((start, lo))
        if hi < end:
            rest.append((hi, end))
    return rest
