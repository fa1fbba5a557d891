"""Host memory of the weights: which parcel is pinned, copied or left in its file, by the engine's own rules. No torch.

The order is the loader's, most bytes read first; within a component streamed layers come before resident ones and those
before the rest. Memory of the host's own counts against `budget.host`, pages of a mapped file do not.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from framework.memory.pin_ledger import PinLedger
from framework.planning.clock import DEVICE, MAPPED, PAGEABLE, PINNED
from framework.planning.facts import Choice, ComponentSizes
from framework.planning.footprint import PERMANENT, layer_sizes, streamed_of
from framework.planning.packing import CHUNK_BYTES
from framework.planning.problem import LAYERWISE, RESIDENT, PlanProblem
from framework.planning.rates import STAGING_BUFFERS
from framework.planning.streaming import Traffic

ITEM_BYTES = {"float32": 4, "float16": 2, "bfloat16": 2, "float64": 8, "float8_e4m3fn": 1, "float8_e5m2": 1}


@dataclass(frozen=True, slots=True)
class HostUse:
    """Host bytes of a run. `host_bytes` is anonymous memory at its peak, `pinned_bytes` page-locked within it.

    `transient_bytes` is what loading takes for a moment, `over_bytes` what must be held beyond the host's budget: the
    engine refuses that. `traffic` says where each parcel went.
    """

    host_bytes: int
    pinned_bytes: int
    table_bytes: int
    transient_bytes: int
    over_bytes: int
    traffic: Mapping[str, Traffic]

    @property
    def mapped(self) -> frozenset[str]:
        """Components that are read from their files all the time, in part or whole."""
        return frozenset(name for name, traffic in self.traffic.items() if MAPPED in traffic_tiers(traffic))


def traffic_tiers(traffic: Traffic) -> set[str]:
    own = {tier for tier, size in zip(traffic.tiers, traffic.layer_bytes, strict=True) if size}
    return own | {tier for _, tier in traffic.rest}


def file_bytes(sizes: ComponentSizes) -> int:
    """Return the bytes of the component's weights in its files."""
    if sizes.file_bytes:
        return sizes.file_bytes
    ratio = ITEM_BYTES.get(sizes.file_dtype or "", 1) / ITEM_BYTES.get(sizes.dtype or "", 1) if is_cast(sizes) else 1
    return int((sizes.size_bytes or 0) * ratio)


def is_cast(sizes: ComponentSizes) -> bool:
    """Whether loading changes the dtype, so that nothing can stay in the file."""
    return sizes.file_dtype is not None and sizes.file_dtype != sizes.dtype


@dataclass(frozen=True, slots=True)
class Parcels:
    """What of a component is kept on the host, in the order it is packed: layers as (number, bytes), the rest as
    (bytes, is buffers). `settled` layers have gone to the device for good."""

    layers: tuple[tuple[int, int], ...]
    settled: frozenset[int]
    rest: tuple[tuple[int, bool], ...]


def parcels(sizes: ComponentSizes, choice: Choice, parked: bool = False) -> Parcels:
    """Take a component apart as the engine does for its mode."""
    buffers = ((sizes.buffer_bytes, True),) if sizes.buffer_bytes else ()
    own = list(enumerate(layer_sizes(sizes)))
    if choice.mode != LAYERWISE:
        whole = sizes.leftover_bytes + sizes.table_bytes + sum(size for _, size in own)
        return Parcels((), frozenset(), (*_chunks(whole), *buffers))
    streamed = streamed_of(sizes, choice)
    own.sort(key=lambda layer: layer[0] not in streamed)
    if choice.lifetime != PERMANENT:
        return Parcels(tuple(own), frozenset(), (*_chunks(sizes.leftover_bytes), *buffers))
    settled = frozenset(number for number, _ in own if number not in streamed)
    rest = _chunks(sizes.leftover_bytes) if parked else []
    return Parcels(tuple(layer for layer in own if layer[0] in streamed), settled, (*rest, *buffers))


def traffic_of(sizes: ComponentSizes, kept: Parcels, tiers: Mapping[int, str], rest: Iterable[str]) -> Traffic:
    """Return what moves, from the tiers of the layers that are kept on the host and those of the rest."""
    own = layer_sizes(sizes)
    all_tiers = tuple(DEVICE if i in kept.settled else tiers.get(i, PINNED) for i in range(len(own)))
    moved = tuple((size, tier) for (size, _), tier in zip(kept.rest, rest, strict=True))
    return Traffic(own if kept.layers or kept.settled else (), all_tiers if kept.layers or kept.settled else (), moved)


def host_use(problem: PlanProblem, choices: Mapping[str, Choice]) -> HostUse:
    """Return what the weights take on the host when they have been loaded in the engine's order."""
    store = _Store(problem.make_ledger(), problem.host_bytes)
    traffic: dict[str, Traffic] = {}
    tables = 0
    for name in problem.loading_order:
        sizes, choice = problem.components[name], choices[name]
        store.begin(sizes)
        if choice.mode != RESIDENT:
            traffic[name] = store.keep(sizes, choice, parcels(sizes, choice, name in problem.parked))
        if choice.mode == LAYERWISE and is_cast(sizes):
            tables += sizes.table_bytes
            store.held += sizes.table_bytes
    passing = any(choice.mode == LAYERWISE and choice.lifetime == PERMANENT for choice in choices.values())
    staged = passing or any(traffic_tiers(one) - {PINNED} for one in traffic.values())
    staging = problem.staging_bytes * STAGING_BUFFERS if staged else 0
    pinned = store.ledger.granted_bytes - problem.booked_staging_bytes
    peak = max(store.peak, store.held) + staging
    return HostUse(
        host_bytes=peak,
        pinned_bytes=pinned + staging,
        table_bytes=tables,
        transient_bytes=peak - store.held - staging,
        over_bytes=max(0, store.held - problem.host_bytes),
        traffic=traffic,
    )


class _Store:
    """Gives out tiers parcel by parcel."""

    def __init__(self, ledger: PinLedger, limit_bytes: int) -> None:
        self.ledger, self._limit = ledger, limit_bytes
        self.held = self.peak = 0

    def begin(self, sizes: ComponentSizes) -> None:
        """A component is read: cast weights lie in memory until they have been packed."""
        size = sizes.size_bytes or 0
        largest = max(max(layer_sizes(sizes), default=0), min(CHUNK_BYTES, size))
        if is_cast(sizes):
            self.peak = max(self.peak, self.held + size + largest)

    def keep(self, sizes: ComponentSizes, choice: Choice, kept: Parcels) -> Traffic:
        in_file, name = not is_cast(sizes), sizes.name
        tiers = {i: self._tier(name, f"layer {i}", size, choice, in_file) for i, size in kept.layers if size}
        rest = [
            self._tier(name, f"rest {number}", size, choice, in_file and not buffers)
            for number, (size, buffers) in enumerate(kept.rest)
        ]
        return traffic_of(sizes, kept, tiers, rest)

    def _tier(self, name: str, part: str, size: int, choice: Choice, in_file: bool) -> str:
        fits = self.held + size <= self._limit
        if in_file and (choice.tier == MAPPED or not fits):
            return MAPPED
        self.held += size
        if choice.tier == PINNED and self.ledger.request(name, part, size):
            return PINNED
        return PAGEABLE


def _chunks(size_bytes: int) -> list[tuple[int, bool]]:
    whole, left = divmod(size_bytes, CHUNK_BYTES)
    return [(CHUNK_BYTES, False)] * whole + ([(left, False)] if left else [])
