"""What placements must stay inside: a capacity for each moment of a run and each kind of memory. No torch."""

from collections.abc import Mapping
from dataclasses import dataclass, replace

from framework.planning.footprint import layer_sizes
from framework.planning.host import is_cast
from framework.planning.memory import weight_bytes, with_ring
from framework.planning.options import Option
from framework.planning.packing import CHUNK_BYTES
from framework.planning.problem import PlanProblem
from framework.planning.uses import Life, Moment

DEVICE, PINNED, HOST, DISK = "device", "pinned", "host", "disk"
UNBOUND = 2**62


@dataclass(frozen=True, slots=True)
class Row:
    """One capacity in bytes, after what is not weights; `extra_bytes` is that. `moment` is set where it is a stage's.

    `until` lists the components that are on the host by the time a cast one is loaded; None: all of them count.
    """

    resource: str
    capacity_bytes: int
    extra_bytes: int = 0
    moment: Moment | None = None
    until: frozenset[str] | None = None
    where: str = ""

    def amount(self, option: Option) -> int:
        """Return how much of it `option` takes."""
        if self.moment is not None:
            return weight_bytes(option.held, self.moment, option.choice.component)
        if self.resource == PINNED:
            return option.pinned_bytes
        if self.resource == DISK:
            return option.disk_bytes
        return option.host_bytes if self.until is None or option.choice.component in self.until else 0


def rows_of(problem: PlanProblem, life: Life) -> list[Row]:
    """Return every capacity; of moments with the same weights only the one with most beside them."""
    rows = _moments(problem, life)
    rows.append(Row(PINNED, problem.pinned_bytes))
    rows.append(Row(HOST, problem.host_bytes))
    rows += _loading(problem)
    if problem.budgets.disk is not None:
        rows.append(Row(DISK, problem.budgets.disk))
    return rows


def _moments(problem: PlanProblem, life: Life) -> list[Row]:
    highest: dict[tuple[frozenset[str], frozenset[str]], Row] = {}
    lazily = {
        name: problem.components[name].lazy_bytes for name in problem.known if problem.components[name].lazy_bytes
    }
    for moment in life.moments:
        lazy = sum(size for name, size in lazily.items() if name in moment.seen)
        extra = moment.extra_bytes + lazy
        key = (moment.active, moment.seen)
        if key not in highest or extra > highest[key].extra_bytes:
            highest[key] = Row(DEVICE, problem.device_bytes - extra, extra, moment, where=moment.stage)
    kept: list[Row] = []
    for row in highest.values():  # those of a stage mostly pile up: the last one holds for all before it
        while kept and _inside(kept[-1], row):
            kept.pop()
        if not kept or not _inside(row, kept[-1]):
            kept.append(row)
    return kept


def _inside(one: Row, other: Row) -> bool:
    """Whether whatever fits `other` fits `one`, in the same stage."""
    if one.moment is None or other.moment is None or one.where != other.where or one.extra_bytes > other.extra_bytes:
        return False
    return one.moment.active <= other.moment.active and one.moment.seen <= other.moment.seen


def _loading(problem: PlanProblem) -> list[Row]:
    """While a cast component is read it lies in memory whole, beside what has been loaded before it."""
    order = problem.loading_order
    rows = []
    for number, name in enumerate(order):
        sizes = problem.components[name]
        if is_cast(sizes):
            whole = sizes.size_bytes or 0
            extra = whole + max(max(layer_sizes(sizes), default=0), min(CHUNK_BYTES, whole))
            room = problem.host_memory.available_bytes - extra
            rows.append(Row(HOST, room, extra, until=frozenset(order[:number]), where=f"loading {name}"))
    return rows


def on_ring(option: Option, slots: int, slot_bytes: int, ring: str) -> Option | None:
    """Return `option` with the ring that its group shares, or None where it needs a larger one."""
    held = option.held
    if not held.slots:
        return option
    if held.slots > slots or held.slot_bytes > slot_bytes:
        return None
    return replace(option, held=with_ring(held, slots, slot_bytes, ring))


def used(rows: list[Row], options: Mapping[str, Option]) -> list[int]:
    """Return how much of each capacity `options` take together, without what is not weights."""
    return [sum(row.amount(option) for option in options.values()) for row in rows]
