"""Nothing fits: which stage binds, what it needs and has, and the smallest change that would do. No torch."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from framework.errors import PlanError
from framework.planning.capacity import DEVICE, UNBOUND, Row, used
from framework.planning.options import NO_WISH, Option, options_of
from framework.planning.problem import PlanProblem
from framework.planning.reasons import size
from framework.planning.search import Candidates, Options, candidates
from framework.planning.uses import Life

STEPS = 48


@dataclass(frozen=True, slots=True)
class Refusal:
    """`where` is the stage (or the loading) that binds; both figures count everything, activations included.

    With `needed_bytes` of this resource something fits, all else as it is. `freed` names components whose placement
    the user has fixed and that would fit if it were not; `bound` says what of theirs leaves no more; `others` what
    would do instead.
    """

    resource: str
    where: str
    needed_bytes: int
    available_bytes: int
    extra_bytes: int = 0
    freed: tuple[str, ...] = ()
    bound: str = ""
    others: tuple["Refusal", ...] = ()

    @property
    def lacking_bytes(self) -> int:
        return self.needed_bytes - self.available_bytes

    @property
    def remedy(self) -> str:
        """The smallest change that would fit, and what would do instead."""
        changes = [_change(one) for one in (self, *self.others)]
        if self.freed:
            names = " or ".join(f"component_residency.{name}" for name in self.freed)
            changes.insert(0, f"leave {names} to the planner")
        return ", or ".join(changes)


def _change(one: Refusal) -> str:
    text = f"{size(one.lacking_bytes)} more of {one.resource} memory"
    if one.resource == DEVICE and one.extra_bytes >= one.lacking_bytes:
        text += f" or as much less of activations, which take {size(one.extra_bytes)} (fewer frames, a smaller picture)"
    return text


class CannotFit(PlanError):
    """No placement fits; `refusal` has the figures."""

    def __init__(self, refusal: Refusal) -> None:
        self.refusal = refusal
        place = f"stage '{refusal.where}'" if refusal.resource == DEVICE else refusal.where or "the run"
        super().__init__(
            f"{place} needs {size(refusal.needed_bytes)} of {refusal.resource} memory, and there is "
            f"{size(refusal.available_bytes)}{refusal.bound and ' '}{refusal.bound}; what would fit: {refusal.remedy}"
        )


def explain_refusal(
    problem: PlanProblem, life: Life, rows: Sequence[Row], options: Options, chances: Candidates
) -> CannotFit:
    """Find the least of one resource with which something fits, all else as it is; the smallest share comes first."""
    plain = chances.timeless()
    found = [one for one in (_least(rows, plain, resource) for resource in _resources(rows)) if one is not None]
    if not found:
        found = [_alone(rows, options)]
    found.sort(key=lambda one: one.lacking_bytes / max(1, one.available_bytes))
    bound = problem.device_bound if found[0].resource == DEVICE else ""
    freed = _freed(problem, life, rows, options)
    return CannotFit(replace(found[0], freed=freed, bound=bound, others=tuple(found[1:])))


def _resources(rows: Sequence[Row]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(row.resource for row in rows))


def _least(rows: Sequence[Row], plain: Candidates, resource: str) -> Refusal | None:
    """Return the refusal if more of `resource` alone would do."""
    best = plain.fastest(_raised(rows, resource, UNBOUND))
    if best is None:
        return None
    low, high = 0, _excess(rows, best, resource)
    for _ in range(STEPS):
        if high - low <= 1:
            break
        middle = (low + high) // 2
        found = plain.fastest(_raised(rows, resource, middle))
        if found is None:
            low = middle
        else:
            best, high = found, min(middle, _excess(rows, found, resource))
    taken = used(list(rows), best)
    own = [(row, taken[i]) for i, row in enumerate(rows) if row.resource == resource]
    row, amount = max(own, key=lambda pair: pair[1] - pair[0].capacity_bytes)
    return _refusal(row, amount)


def _refusal(row: Row, amount: int) -> Refusal:
    needed, available = amount + row.extra_bytes, row.capacity_bytes + row.extra_bytes
    return Refusal(row.resource, row.where, needed, available, row.extra_bytes)


def _raised(rows: Sequence[Row], resource: str, more: int) -> list[int]:
    return [row.capacity_bytes + (more if row.resource == resource else 0) for row in rows]


def _excess(rows: Sequence[Row], chosen: Mapping[str, Option], resource: str) -> int:
    taken = used(list(rows), chosen)
    return max(taken[i] - row.capacity_bytes for i, row in enumerate(rows) if row.resource == resource)


def _alone(rows: Sequence[Row], options: Options) -> Refusal:
    """Two resources lack at once: name the one that lacks most at the very least."""
    found = []
    for row in rows:
        least = sum(min(row.amount(option) for option in own) for own in options.values())
        found.append(_refusal(row, least))
    return max(found, key=lambda one: one.lacking_bytes)


def _freed(problem: PlanProblem, life: Life, rows: Sequence[Row], options: Options) -> tuple[str, ...]:
    """Return the components whose fixed placement alone is in the way."""
    rates = problem.make_rates()
    capacities = [row.capacity_bytes for row in rows]
    found = []
    for name in problem.known:
        if problem.wishes.get(name, NO_WISH) == NO_WISH:
            continue
        free = replace(problem, wishes={key: wish for key, wish in problem.wishes.items() if key != name})
        spans = [span for span in life.spans if span.component == name]
        own = dict(options) | {name: options_of(free, name, spans, rates)}
        if candidates(free, own, rows).timeless().fastest(capacities) is not None:
            found.append(name)
    return tuple(found)
