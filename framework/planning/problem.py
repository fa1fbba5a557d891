"""What the planner is asked: sizes, work and uses of a run on one machine, and what is given or left free. No torch."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType

from framework.memory.host_budget import HostMemory
from framework.memory.pin_ledger import PinLedger
from framework.planning.facts import Budgets, Choice, ComponentSizes, RunWork
from framework.planning.rates import STAGING_BUFFERS, STAGING_BYTES, Rates, rates_of
from framework.platforms.hardware import GIB, HardwareProfile
from framework.spec import ComponentUse

MIB = 1024**2
PAGE_BYTES = 4096
RESIDENT, WHOLE, LAYERWISE = "resident", "component-offload", "layerwise-offload"
DIT = "dit"
MODES = (RESIDENT, WHOLE, LAYERWISE)
COPY_RESERVE_BYTES = 4 * GIB
"""Host memory that copies of mapped weights leave free (`framework.memory.host_store`)."""

NO_WISHES: "Mapping[str, Wish]" = MappingProxyType({})
NO_PRESETS: Mapping[str, Mapping[str, Choice]] = MappingProxyType({})


@dataclass(frozen=True, slots=True, kw_only=True)
class Reserve:
    """Bytes that a plan leaves alone.

    `context` and `desktop` None: together the hardware profile's `reserve_gib`. `workspace` is what libraries take for
    themselves (cuBLAS, cuDNN); `allocator` a share of the device for what an allocator cannot hand out in one piece:
    5 % where activations were profiled, as measured elsewhere. `host` is the operating system and this process.
    """

    context: int | None = None
    desktop: int | None = None
    workspace: int = 256 * MIB
    allocator: float = 0.05
    host: int = 3 * GIB


NO_RESERVE = Reserve(workspace=0, allocator=0.0, host=0)
"""For a simulated machine, whose ledger has no slack."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Wish:
    """What the user has fixed for one component; None is left to the planner. Knobs are whole layers for each stack."""

    mode: str | None = None
    prefetch: tuple[int, ...] | None = None
    resident: tuple[int, ...] | None = None
    policy: str | None = None
    lifetime: str | None = None
    tier: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanProblem:
    """`uses` are the component uses of each stage; `presets` are complete placements that the answer has to beat.

    `host` None: the profile's memory less the reserve. `modes` are those that the engine can carry out here.
    """

    components: Mapping[str, ComponentSizes]
    work: RunWork
    uses: Mapping[str, tuple[ComponentUse, ...]]
    hardware: HardwareProfile
    budgets: Budgets = field(default_factory=Budgets)
    reserve: Reserve = field(default_factory=Reserve)
    wishes: Mapping[str, Wish] = field(default_factory=lambda: NO_WISHES)
    presets: Mapping[str, Mapping[str, Choice]] = field(default_factory=lambda: NO_PRESETS)
    host: HostMemory | None = None
    modes: tuple[str, ...] = MODES
    simplicity_s: float = 0.1  # a simpler mode is taken where it costs less, and a thousandth of the run
    parked: frozenset[str] = frozenset()  # what lies outside their layers leaves the device between uses

    @property
    def known(self) -> tuple[str, ...]:
        """Names of the components whose size is known."""
        return tuple(name for name, sizes in self.components.items() if sizes.size_bytes is not None)

    @property
    def unknown(self) -> tuple[str, ...]:
        return tuple(name for name, sizes in self.components.items() if sizes.size_bytes is None)

    @property
    def device_bytes(self) -> int:
        """Device bytes that weights and activations may take."""
        reserve, hardware = self.reserve, self.hardware
        room = hardware.capacity_bytes
        if reserve.context is not None or reserve.desktop is not None:
            room = int(hardware.memory_gib * GIB) - (reserve.context or 0) - (reserve.desktop or 0)
        room = int((room - reserve.workspace) * (1 - reserve.allocator))
        return max(0, room if self.budgets.device is None else min(room, self.budgets.device))

    @property
    def device_bound(self) -> str:
        """What the user has said that leaves no more of the device than `device_bytes`; empty: nothing."""
        unbound = replace(self, budgets=replace(self.budgets, device=None)).device_bytes
        if self.device_bytes < unbound:
            return "by budget.device"
        own, usual = self.reserve, Reserve()
        more = {"context": own.context, "desktop": own.desktop}
        more |= {"workspace": own.workspace > usual.workspace, "allocator": own.allocator > usual.allocator}
        said = [name for name, value in more.items() if value]
        return f"beside {' and '.join(f'reserve.{name}' for name in said)}" if said else ""

    @property
    def host_memory(self) -> HostMemory:
        if self.host is not None:
            return self.host
        total = int(self.hardware.host_ram_gib * GIB)
        return HostMemory(total, max(0, total - self.reserve.host))

    @property
    def host_bytes(self) -> int:
        """Host bytes of their own that weights may take; pages of mapped files are the kernel's."""
        room = max(0, self.host_memory.available_bytes - COPY_RESERVE_BYTES)
        budget = self.budgets.host
        return room if budget is None else max(0, min(room, budget - self.booked_staging_bytes))

    @property
    def pinned_bytes(self) -> int:
        """Bytes of weights that may be page-locked."""
        return self.make_ledger().left_bytes

    @property
    def staging_bytes(self) -> int:
        """Size of one staging buffer: a budget leaves at most a quarter of itself to them (`memory.resources`)."""
        if not self._bounded:
            return STAGING_BYTES
        limit = self.budgets.host if self.budgets.host is not None else STAGING_BYTES * 8
        spendable = min(PinLedger(self.host_memory, self.budgets.pinned).spendable_bytes, limit)
        return min(STAGING_BYTES, spendable // (4 * STAGING_BUFFERS) // PAGE_BYTES * PAGE_BYTES)

    @property
    def booked_staging_bytes(self) -> int:
        """What the budgets hold for staging before any weight."""
        return self.staging_bytes * STAGING_BUFFERS if self._bounded else 0

    @property
    def _bounded(self) -> bool:
        return self.budgets.pinned is not None or self.budgets.host is not None

    def make_ledger(self) -> PinLedger:
        """Return the pin ledger as a run on this machine begins with it."""
        ledger = PinLedger(self.host_memory, self.budgets.pinned)
        if self.booked_staging_bytes:
            ledger.request("staging", "buffers", self.booked_staging_bytes)
        return ledger

    def make_rates(self) -> Rates:
        """Return the rates of the machine under these budgets."""
        return replace(rates_of(self.hardware), staging_bytes=self.staging_bytes)

    @property
    def loading_order(self) -> tuple[str, ...]:
        """Known components as the loader takes them: most bytes read in a request first, a denoiser once a step."""
        known = dict.fromkeys(self.known)
        counts = [
            counted.count
            for stage in self.work.stages
            for counted in stage.calls
            if counted.call.component in known and self.components[counted.call.component].group == DIT
        ]
        steps = max(counts, default=1)

        def read_bytes(name: str) -> int:
            sizes = self.components[name]
            return (sizes.size_bytes or 0) * (steps if sizes.group == DIT else 1)

        return tuple(sorted(sorted(known), key=lambda name: -read_bytes(name)))
