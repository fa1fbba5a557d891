"""How long each use of a component takes, and its loading: the recurrence over its calls. No torch.

Uses follow each other: copies of a use wait for the compute before it and the other way round, so times add up. Only
the head of a second expert may come earlier, from the second request on: at most two copies.
"""

from dataclasses import dataclass

from framework.planning.clock import DEVICE, MAPPED, PINNED, Clock
from framework.planning.facts import CallWork, Choice, ComponentSizes, Work
from framework.planning.footprint import depth_of, resident_bytes, streamed_of
from framework.planning.host import file_bytes
from framework.planning.problem import LAYERWISE, RESIDENT, WHOLE
from framework.planning.rates import Rates
from framework.planning.streaming import Pass, Ring, Traffic, repeat
from framework.planning.uses import Span

Passes = dict[int, Pass]
"""The passes of calls, by the id of the call."""


@dataclass(frozen=True, slots=True)
class Cost:
    """Seconds of one use inside one stage: in all, and how long compute, bus, host and disk were busy."""

    stage: str
    seconds: float
    compute_s: float
    copy_s: float
    host_s: float
    disk_s: float
    moved_bytes: int


def span_costs(
    span: Span,
    sizes: ComponentSizes,
    choice: Choice,
    traffic: Traffic,
    rates: Rates,
    parked: bool = False,
    known: Passes | None = None,
) -> list[Cost]:
    """Return the cost of a use in each of the stages it reaches into; `parked`: even the rest has to come first."""
    known = {} if known is None else known
    clock = Clock(rates)
    ring = _begin(clock, sizes, choice, traffic, parked)
    costs = []
    before = (0.0, 0.0, 0.0, 0.0, 0.0, 0)
    for number, (stage, calls) in enumerate(span.parts):
        for counted in calls:
            steps = steps_of(counted.call, sizes, rates, known)
            if ring is not None:
                ring.followed = stage in span.copying
            repeat(clock, ring, steps, counted.count, told=counted.steps is not None)
        if number == len(span.parts) - 1:
            clock.let_compute_follow()
        after = (clock.now, clock.compute_s, clock.copy_s, clock.host_s, clock.disk_s, clock.moved_bytes)
        now, compute, copy, host, disk, moved = (new - old for new, old in zip(after, before, strict=True))
        costs.append(Cost(stage, now, compute, copy, host, disk, int(moved)))
        before = after
    return costs


def _begin(clock: Clock, sizes: ComponentSizes, choice: Choice, traffic: Traffic, parked: bool) -> Ring | None:
    """A use begins: reserve, send the first copies, and let compute wait for what has to be there."""
    if choice.mode == RESIDENT:
        return None
    if choice.mode == WHOLE or parked:
        for size, tier in traffic.rest:
            clock.send(size, tier)
        clock.let_compute_follow()
    if choice.mode == WHOLE:
        return None
    ring = Ring(clock, traffic, streamed_of(sizes, choice), depth_of(choice))
    ring.start()
    return ring


def steps_of(call: CallWork, sizes: ComponentSizes, rates: Rates, known: Passes) -> Pass:
    """Return a call as a pass: its layers numbered through all stacks, with the work around them.

    `known` keeps what has been worked out, for the same call and rates.
    """
    if id(call) not in known:
        known[id(call)] = _steps(call, sizes, rates)
    return known[id(call)]


def _steps(call: CallWork, sizes: ComponentSizes, rates: Rates) -> Pass:
    first: dict[str, int] = {}
    number = 0
    for stack in sizes.stacks:
        first[stack.path] = number
        number += len(stack.layers)
    steps = [(-1, rates.kernel_seconds(call.before), call.before.launches)]
    known: dict[int, float] = {}  # layers alike share one object
    for (stack_path, index), work in zip(call.layers, call.layer_work, strict=True):
        if id(work) not in known:
            known[id(work)] = rates.kernel_seconds(work)
        layer = first[stack_path] + index if stack_path in first else -1
        steps.append((layer, known[id(work)], work.launches))
    steps.append((-1, rates.kernel_seconds(call.after), call.after.launches))
    return tuple(step for step in steps if step[0] >= 0 or step[1] or step[2])


def around(stage: str, outside: Work, rates: Rates) -> Cost:
    """Return the cost of a stage's own code around its calls: launches, or kernels where those take longer, and copies.

    Scheduler steps and guidance mostly wait for the launch of small kernels.
    """
    kernels_s, launches_s = rates.kernel_seconds(outside), outside.launches * rates.launch_s
    copies_s = outside.h2d_bytes * rates.pageable_s + outside.d2h_bytes * rates.d2h_s
    seconds = max(kernels_s, launches_s) + copies_s
    return Cost(stage, seconds, kernels_s, copies_s, launches_s, 0.0, 0)


def load_seconds(sizes: ComponentSizes, choice: Choice, traffic: Traffic | None, rates: Rates) -> float:
    """Return the time of bringing a component from a cold disk to where it stays between uses.

    What stays in its file is read once here too: a first pass finds its pages only if somebody has read them.
    """
    if choice.mode == RESIDENT or traffic is None:
        return file_bytes(sizes) * rates.disk_s + resident_bytes(sizes) * rates.pageable_s
    own = list(zip(traffic.layer_bytes, traffic.tiers, strict=True)) + list(traffic.rest)
    copied = sum(size for size, tier in own if tier not in (MAPPED, DEVICE))
    seconds = file_bytes(sizes) * rates.disk_s + copied * rates.stage_s
    seconds += sum(size for size, tier in own if tier == DEVICE) * rates.pageable_s
    if choice.mode == LAYERWISE:
        seconds += sum(size * rates.pinned_s for size, tier in traffic.rest if tier == PINNED)
    return seconds
