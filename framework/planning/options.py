"""Every placement of one component worth looking at, with what it takes and how long it lasts. No torch."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import product

from framework.planning.clock import MAPPED, PAGEABLE, PINNED
from framework.planning.facts import Choice, ComponentSizes
from framework.planning.footprint import Footprint, footprint, layer_sizes
from framework.planning.host import file_bytes, is_cast, parcels, traffic_of
from framework.planning.problem import LAYERWISE, MODES, RESIDENT, PlanProblem, Wish
from framework.planning.rates import Rates
from framework.planning.streaming import Traffic
from framework.planning.timing import Cost, Passes, load_seconds, span_costs
from framework.planning.uses import Span

DEPTHS = (1, 2)
"""Layers ahead. Nothing ahead is looked at for the tightest card alone: without resident layers."""

MIN_COVERAGE = 0.1
"""Below this share of the weights in layers the engine refuses to stream (`framework.memory.layers`)."""

COARSE, FEW = 4, 9
"""Two layers ahead, or from memory that is not pinned, every fourth count of resident layers is looked at."""

ALL_COMBINATIONS = 64
"""Up to this many, every combination of resident layers of several stacks is looked at."""

FINE = 128
"""Of more layers, so many counts of resident ones are looked at, evenly spread: the cost of a plan stays linear."""

NO_WISH = Wish()


@dataclass(frozen=True, slots=True)
class Option:
    """A placement with its device footprint, host bytes, bytes read from disk, and seconds, loading included."""

    choice: Choice
    held: Footprint
    seconds: float
    load_s: float
    pinned_bytes: int
    host_bytes: int
    disk_bytes: int

    @property
    def rank(self) -> int:
        """Among placements that last as long, the simpler one first: fewer layers ahead, then the simpler mode."""
        return self.mode_rank * 16 + max(self.choice.prefetch, default=0)

    @property
    def mode_rank(self) -> int:
        """How far the mode is from the simplest one."""
        return MODES.index(self.choice.mode) if self.choice.mode in MODES else len(MODES)


def options_of(problem: PlanProblem, name: str, spans: Sequence[Span], rates: Rates) -> list[Option]:
    """Return the placements of `name` that its wish allows."""
    sizes = problem.components[name]
    question = _Question(problem, sizes, spans, rates)
    wish = problem.wishes.get(name, NO_WISH)
    found: list[Option] = []
    for mode in _modes(problem, sizes, wish):
        for tier in _tiers(problem, sizes, wish, mode):
            chosen = Choice(component=name, mode=mode, tier=tier)
            if mode == LAYERWISE:
                found += _streamed(question, wish, chosen)
            else:
                found.append(question.answer(chosen))
    return found


def can_stream(sizes: ComponentSizes) -> bool:
    """Whether enough of the weights lies in layers for the engine to stream them."""
    return bool(sizes.stacks) and sum(layer_sizes(sizes)) >= MIN_COVERAGE * (
        (sizes.size_bytes or 0) - sizes.table_bytes
    )


def _modes(problem: PlanProblem, sizes: ComponentSizes, wish: Wish) -> Sequence[str]:
    if wish.mode is not None:
        return (wish.mode,)
    knobs = (wish.prefetch, wish.resident, wish.policy, wish.lifetime)
    if any(knob is not None for knob in knobs) and LAYERWISE in problem.modes and can_stream(sizes):
        return (LAYERWISE,)  # its knobs mean nothing in another mode
    if problem.hardware.unified:
        return (RESIDENT,)  # moving weights frees nothing there
    return [mode for mode in problem.modes if mode != LAYERWISE or can_stream(sizes)]


def _tiers(problem: PlanProblem, sizes: ComponentSizes, wish: Wish, mode: str) -> Sequence[str]:
    if mode == RESIDENT:
        return ("device",)
    if wish.tier is not None:
        return (wish.tier,)
    needed = sum(one.size_bytes or 0 for one in problem.components.values()) * 1.01
    if needed <= min(problem.pinned_bytes, problem.host_bytes):
        return (PINNED,)  # nobody has to stand back
    tiers = [PINNED, PAGEABLE]
    return tiers if is_cast(sizes) else [*tiers, MAPPED]


def _streamed(question: "_Question", wish: Wish, chosen: Choice) -> Iterator[Option]:
    """Ever more resident layers, until compute covers the copies: more would buy nothing."""
    lengths = tuple(len(stack.layers) for stack in question.sizes.stacks)
    policy, lifetime = wish.policy or chosen.policy, wish.lifetime or chosen.lifetime
    counts = [wish.resident] if wish.resident is not None else list(_resident_counts(lengths))
    depths = [tuple(min(depth, length) for length in lengths) for depth in DEPTHS]
    for prefetch in [wish.prefetch] if wish.prefetch is not None else depths:
        fine = len(counts) <= FEW or (prefetch != depths[1] and chosen.tier == PINNED)
        for resident in counts if fine else counts[::COARSE]:
            own = replace(chosen, prefetch=prefetch, resident=resident, policy=policy, lifetime=lifetime)
            option = question.answer(own)
            yield option
            if option.seconds - option.load_s <= question.covered_s:
                break
    if wish.prefetch is None and not any(counts[0]):
        none = (0,) * len(lengths)
        yield question.answer(replace(chosen, prefetch=none, resident=none, policy=policy, lifetime=lifetime))


def _resident_counts(lengths: tuple[int, ...]) -> Iterator[tuple[int, ...]]:
    """Resident layers of each stack: all combinations of a few, else all stacks alike or one after the other."""
    combinations = 1
    for length in lengths:
        combinations *= length + 1
    if len(lengths) == 1:
        yield from ((count,) for count in _spread(lengths[0]))
        return
    if combinations <= ALL_COMBINATIONS:
        yield from sorted(product(*(range(length + 1) for length in lengths)), key=lambda one: (sum(one), one))
        return
    total = sum(lengths)
    seen: set[tuple[int, ...]] = set()
    for count in _spread(total):
        alike = tuple(round(count * length / total) for length in lengths)
        for one in (alike, _filled(lengths, count), _filled(lengths[::-1], count)[::-1]):
            if one not in seen:
                seen.add(one)
                yield one


def _spread(length: int) -> list[int]:
    """Counts from none to all, at most about `FINE` of them."""
    step = -(-length // FINE) or 1
    return [*range(0, length, step), length]


def _filled(lengths: tuple[int, ...], count: int) -> tuple[int, ...]:
    found = []
    for length in lengths:
        found.append(min(length, count))
        count -= found[-1]
    return tuple(found)


class _Question:
    """One component of a problem, and what does not depend on where it is placed."""

    def __init__(self, problem: PlanProblem, sizes: ComponentSizes, spans: Sequence[Span], rates: Rates) -> None:
        self.sizes = sizes
        self._spans, self._rates = spans, rates
        self._parked = sizes.name in problem.parked
        self._passes: Passes = {}
        kept = self._costs(Choice(component=sizes.name, mode=RESIDENT), Traffic((), ()))
        one_copy = max(layer_sizes(sizes), default=0) * rates.pinned_s
        self.covered_s = sum(cost.seconds for cost in kept) + 2 * one_copy * len(spans)
        """Seconds of its uses when only the first copy and a last useless one are waited for."""

    def answer(self, choice: Choice) -> Option:
        sizes, rates = self.sizes, self._rates
        traffic, own, kept = Traffic((), ()), 0, 0
        if choice.mode != RESIDENT:
            traffic, own, kept = _traffic(sizes, choice, self._parked)
        costs = self._costs(choice, traffic)
        load_s = load_seconds(sizes, choice, traffic, rates)
        table = sizes.table_bytes if choice.mode == LAYERWISE and is_cast(sizes) else 0
        again = sum(cost.disk_s for cost in costs) / rates.disk_s
        return Option(
            choice=choice,
            held=footprint(sizes, choice, self._parked),
            seconds=load_s + sum(cost.seconds for cost in costs),
            load_s=load_s,
            pinned_bytes=own if choice.tier == PINNED else 0,
            host_bytes=kept + table,
            disk_bytes=round(again) + file_bytes(sizes),
        )

    def _costs(self, choice: Choice, traffic: Traffic) -> list[Cost]:
        return [
            cost
            for span in self._spans
            for cost in span_costs(span, self.sizes, choice, traffic, self._rates, self._parked, self._passes)
        ]


def _traffic(sizes: ComponentSizes, choice: Choice, parked: bool) -> tuple[Traffic, int, int]:
    """Return what moves where every parcel has the choice's tier, its bytes, and those in the host's own memory."""
    kept = parcels(sizes, choice, parked)
    writable = PAGEABLE if choice.tier == MAPPED else choice.tier
    rest = [writable if buffers else choice.tier for _, buffers in kept.rest]
    traffic = traffic_of(sizes, kept, dict.fromkeys((i for i, _ in kept.layers), choice.tier), rest)
    own = sum(size for _, size in kept.layers) + sum(size for size, _ in kept.rest)
    in_memory = sum(size for size, buffers in kept.rest if buffers) if choice.tier == MAPPED else own
    return traffic, own, in_memory
