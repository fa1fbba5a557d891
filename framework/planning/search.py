"""The placements of all components as items of one knapsack, prepared once and solved for any capacities. No torch."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product
from math import inf

from framework.planning.capacity import Row, on_ring
from framework.planning.memory import rings
from framework.planning.options import Option
from framework.planning.problem import PlanProblem
from framework.planning.solve import Item, solve, undominated

Options = Mapping[str, Sequence[Option]]

SIMPLER = 0.001
"""Share of a run that a simpler mode may cost at most: a run of seconds is not slowed down for `simplicity_s`."""


@dataclass(frozen=True, slots=True)
class Candidates:
    """What can be chosen: for each size of the shared rings, the items of each component that no other beats."""

    names: tuple[str, ...]
    by_ring: tuple[tuple[tuple[Item, ...], ...], ...]

    def fastest(self, capacities: Sequence[int]) -> dict[str, Option] | None:
        """Return the fastest option of each component inside `capacities`, None where nothing fits."""
        best: list[Item] | None = None
        below = inf
        for groups in self.by_ring:
            found = solve(groups, capacities, below)
            if found is not None:
                best, below = found, sum(item.seconds for item in found)
        return None if best is None else {name: item.tag for name, item in zip(self.names, best, strict=True)}

    def timeless(self) -> "Candidates":
        """The same without time, for the question whether anything fits."""
        plain = (
            tuple(tuple(undominated([replace(item, seconds=0.0) for item in group])) for group in groups)
            for groups in self.by_ring
        )
        return Candidates(self.names, tuple(plain))


def candidates(problem: PlanProblem, options: Options, rows: Sequence[Row]) -> Candidates:
    """Prepare the search over `options`; the order of `rows` is that of the capacities."""
    names, step_s = tuple(options), _simplicity(problem, options)
    by_ring = (
        tuple(tuple(undominated([_item(step_s, option, rows) for option in own[name]])) for name in names)
        for own in _by_ring(problem, options)
        if all(own.values())
    )
    return Candidates(names, tuple(by_ring))


def _simplicity(problem: PlanProblem, options: Options) -> float:
    """Return the seconds that one step to a simpler mode is worth, from those that no placement can save."""
    least_s = sum(min((option.seconds for option in own), default=0.0) for own in options.values())
    return min(problem.simplicity_s, SIMPLER * least_s)


def _item(step_s: float, option: Option, rows: Sequence[Row]) -> Item:
    """What is made least: seconds, and a little for every mode that is less simple than staying on the device."""
    seconds = option.seconds + step_s * option.mode_rank
    return Item(seconds, option.rank, tuple(row.amount(option) for row in rows), option)


def _by_ring(problem: PlanProblem, options: Options) -> Iterator[Options]:
    """Yield the options for each size of the shared rings, smallest first."""
    groups = [names for names in rings(problem) if all(any(o.held.slots for o in options[name]) for name in names)]
    sizes = [_ring_sizes([option for name in names for option in options[name]]) for names in groups]
    for chosen in product(*sizes):
        own = dict(options)
        for names, (slots, slot_bytes) in zip(groups, chosen, strict=True):
            for name in names:
                fitted = (on_ring(option, slots, slot_bytes, " and ".join(names)) for option in own[name])
                own[name] = [option for option in fitted if option is not None]
        yield own


def _ring_sizes(options: Sequence[Option]) -> list[tuple[int, int]]:
    slots = sorted({option.held.slots for option in options if option.held.slots})
    sizes = sorted({option.held.slot_bytes for option in options if option.held.slots})
    return [(count, size) for size in sizes for count in slots]
