"""The spans a trace is made of, and the arithmetic of intervals that a summary needs. No torch."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

Interval = tuple[float, float]

STAGES, COMPUTE, COPY, READER, HOST, USES = "stages", "compute", "copy", "reader", "host", "uses"
TRACKS = (STAGES, COMPUTE, COPY, READER, HOST, USES)

STALL = "stall"  # compute waits for a copy
WORK = "work"  # kernels of one layer, component or stage
MOVE = "move"  # bytes over the bus
WAIT = "wait"  # the host waits


@dataclass(frozen=True, slots=True, kw_only=True)
class Span:
    """One interval of one track, in seconds from the start of the trace.

    `kind` says what it is on its track; `busy_s` is how much of it kernels took, where that is known exactly;
    `direction` is h2d, d2h or p2p for moves.
    """

    track: str
    kind: str
    name: str
    start_s: float
    end_s: float
    component: str | None = None
    layer: str | None = None
    stage: str | None = None
    step: int | None = None
    size_bytes: int | None = None
    direction: str | None = None
    busy_s: float | None = None

    @property
    def seconds(self) -> float:
        return self.end_s - self.start_s


def union(intervals: Iterable[Interval]) -> list[Interval]:
    """Return disjoint intervals in order that cover the same time."""
    merged: list[Interval] = []
    for start, end in sorted(intervals):
        if merged and start <= merged[-1][1]:
            merged[-1] = (merged[-1][0], max(merged[-1][1], end))
        elif end > start:
            merged.append((start, end))
    return merged


def total(intervals: Iterable[Interval]) -> float:
    """Return the summed length of disjoint intervals."""
    return sum(end - start for start, end in intervals)


def overlap(one: Sequence[Interval], other: Sequence[Interval]) -> float:
    """Return how long both of two lists of disjoint, ordered intervals last at once."""
    shared, i, j = 0.0, 0, 0
    while i < len(one) and j < len(other):
        start, end = max(one[i][0], other[j][0]), min(one[i][1], other[j][1])
        shared += max(0.0, end - start)
        if one[i][1] < other[j][1]:
            i += 1
        else:
            j += 1
    return shared


def clipped(intervals: Iterable[Interval], window: Interval) -> list[Interval]:
    """Return the parts of `intervals` that lie in `window`."""
    cut = ((max(start, window[0]), min(end, window[1])) for start, end in intervals)
    return [(start, end) for start, end in cut if end > start]
