"""Why each component is where it is, and what was nearest to that, in one line each. No torch."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from framework.planning.capacity import DEVICE, HOST, Row, used
from framework.planning.clock import MAPPED, PAGEABLE
from framework.planning.facts import Choice
from framework.planning.footprint import streamed_of
from framework.planning.options import NO_WISH, Option
from framework.planning.problem import LAYERWISE, RESIDENT, WHOLE, PlanProblem

GB = 1e9
TIERS = {PAGEABLE: "; its host memory is not pinned", MAPPED: "; it is read from its file every time"}
WORDS = {RESIDENT: "staying on the device", WHOLE: "coming whole", LAYERWISE: "streaming"}


@dataclass(frozen=True, slots=True)
class Alternative:
    """A placement of one component that was not taken, all others as they are.

    `seconds` is what it would add to the run; `short_bytes` what it lacks of `resource` (0: it fits).
    """

    component: str
    choice: Choice
    seconds: float
    short_bytes: int
    resource: str
    where: str

    def __str__(self) -> str:
        what = f"{self.component} {WORDS.get(self.choice.mode, self.choice.mode)}"
        if self.choice.mode == LAYERWISE and any(self.choice.resident):
            what += f" with {sum(self.choice.resident)} layers kept"
        if self.short_bytes:
            place = f" in {self.where}" if self.where else ""
            return f"{what} lacks {size(self.short_bytes)} of {self.resource} memory{place} ({self.seconds:+.2f} s)"
        return f"{what} fits and takes {self.seconds:+.2f} s"


def size(size_bytes: float) -> str:
    """Bytes for a reader, in GB of 10^9 as checkpoints are counted."""
    return f"{size_bytes / GB:.1f} GB" if size_bytes >= 0.05 * GB else f"{size_bytes / 1e6:.1f} MB"


def reason(problem: PlanProblem, rows: Sequence[Row], chosen: Mapping[str, Option], name: str) -> str:
    """Say why `name` is where it is."""
    option = chosen[name]
    sizes = problem.components[name]
    weights, left, stage = size(sizes.size_bytes or 0), *_left(rows, chosen, name)
    room = f"{size(left)} left for it in {stage}" if stage else f"{size(left)} left for it"
    wish = problem.wishes.get(name, NO_WISH)
    if wish.mode is not None:
        return f"{name}: {wish.mode} as you set it: {weights} of weights, {room}"
    if option.choice.mode == RESIDENT:
        return f"{name} stays on the device: {weights} of weights, {room}"
    if option.choice.mode == WHOLE:
        return f"{name} comes whole for each use: {weights} of weights, {room}; others need its place meanwhile"
    layers = sum(len(stack.layers) for stack in sizes.stacks)
    kept = layers - len(streamed_of(sizes, option.choice))
    text = f"{name} streams: {weights} of weights, {room}"
    text += f"; {kept} of {layers} layers stay" if kept else ""
    return text + TIERS.get(option.choice.tier, "")


def _left(rows: Sequence[Row], chosen: Mapping[str, Option], name: str) -> tuple[int, str]:
    """Return the device bytes that the others leave `name` where it is used, least first, and the stage."""
    taken = used(list(rows), chosen)
    found = [
        (row.capacity_bytes - taken[i] + row.amount(chosen[name]), row.where)
        for i, row in enumerate(rows)
        if row.moment is not None and name in row.moment.active
    ]
    return min(found, default=(0, ""))


def alternatives(
    problem: PlanProblem, rows: Sequence[Row], options: Mapping[str, list[Option]], chosen: Mapping[str, Option]
) -> tuple[Alternative, ...]:
    """Return, for each component, the best of every other mode and one more resident layer, the others unchanged."""
    taken = used(list(rows), chosen)
    found: list[Alternative] = []
    for name, own in chosen.items():
        rest = [taken[i] - row.amount(own) for i, row in enumerate(rows)]
        by_mode: dict[str, Alternative] = {}
        for option in options[name]:
            kind = _kind(own, option)
            if kind is not None:
                near = _compare(rows, rest, own, option)
                if kind not in by_mode or _order(near) < _order(by_mode[kind]):
                    by_mode[kind] = near
        found += by_mode.values()
    return tuple(found)


def _kind(own: Option, option: Option) -> str | None:
    """Tell what sort of alternative an option is: another mode, or one more layer kept."""
    if option.choice.mode != own.choice.mode:
        return option.choice.mode
    if option.choice.mode != LAYERWISE or option.choice.tier != own.choice.tier:
        return None
    more = sum(option.choice.resident) - sum(own.choice.resident)
    return "one more" if more == 1 and option.choice.prefetch == own.choice.prefetch else None


def _order(near: Alternative) -> tuple[int, float]:
    return near.short_bytes, near.seconds


def _compare(rows: Sequence[Row], rest: Sequence[int], own: Option, option: Option) -> Alternative:
    short, resource, where = 0, DEVICE, ""
    for i, row in enumerate(rows):
        lacking = rest[i] + row.amount(option) - row.capacity_bytes
        if lacking > short:
            short, resource, where = lacking, row.resource, row.where
    choice = option.choice
    return Alternative(choice.component, choice, option.seconds - own.seconds, short, resource or HOST, where)
