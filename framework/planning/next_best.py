"""What a plan would take next with less device memory, one component at a time, the cheapest first. No torch."""

from collections.abc import Iterator, Mapping, Sequence

from framework.planning.footprint import Footprint
from framework.planning.options import Option
from framework.planning.plan import Plan
from framework.planning.wishes import fixed, placement_of
from framework.spec import NextBest, Placement

MAX_EACH = 8  # for one component


def next_best(plan: Plan, placements: Mapping[str, Placement]) -> tuple[NextBest, ...]:
    """Return placements that hold less than the planned ones, by what they add to the run's time.

    None where the config has decided everything itself. `placements` are those of the config.
    """
    if plan.selection is None:
        return ()
    found: list[NextBest] = []
    for name, options in plan.selection.options.items():
        own = next((one for one in options if fixed(one.choice) == fixed(plan.choices[name])), None)
        if own is not None and name in placements:
            found += _smaller(own, options, placements[name])
    return tuple(sorted(found, key=lambda one: (one.seconds, -one.used_bytes)))


def _smaller(own: Option, options: Sequence[Option], placement: Placement) -> Iterator[NextBest]:
    """Yield what holds less, each saving more than those that cost less time."""
    used, idle = _held(own.held)
    compared = sorted(options, key=lambda option: (option.seconds, _held(option.held)))
    best, number = 0, 0
    for option in compared:
        saved = (used - _held(option.held)[0], idle - _held(option.held)[1])
        if sum(saved) > best and min(saved) >= 0 and number < MAX_EACH:
            best, number = sum(saved), number + 1
            yield NextBest(placement_of(option.choice, placement), option.seconds - own.seconds, *saved)


def _held(held: Footprint) -> tuple[int, int]:
    """Device bytes in a use and between uses, rings included."""
    used = held.used_bytes + held.ring_bytes
    return used, used if held.stays else held.idle_bytes
