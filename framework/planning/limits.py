"""The bounds and reserves of a config in bytes of one machine, before a device is looked at. No torch."""

from framework.memory.host_budget import HostMemory
from framework.planning.facts import Budgets
from framework.planning.problem import NO_RESERVE, Reserve
from framework.platforms.hardware import GIB, HardwareProfile
from framework.spec import Bound, BudgetSpec, ReserveSpec


def budgets_of(budget: BudgetSpec, hardware: HardwareProfile, host: HostMemory | None = None) -> Budgets:
    """Return the bounds in bytes; what is free is what the profile's reserve leaves, and `host` (None: the profile's).

    `budget.disk` is about what is kept between runs: it bounds nothing that a plan moves.
    """
    memory = host or host_of(hardware)
    device = (int(hardware.memory_gib * GIB), hardware.capacity_bytes)
    of_host = (memory.total_bytes, memory.available_bytes)
    return Budgets(
        device=_bytes(budget.device, device), pinned=_bytes(budget.pinned, of_host), host=_bytes(budget.host, of_host)
    )


def reserve_of(reserve: ReserveSpec, hardware: HardwareProfile, *, exact: bool = False) -> Reserve:
    """Return what a plan leaves alone; `exact`: a simulated machine, which needs no more than what was said."""
    usual = NO_RESERVE if exact else Reserve()
    total = int(hardware.memory_gib * GIB)

    def said(bound: Bound | None) -> int | None:
        return None if bound is None else bound.of(total, total)

    allocator = said(reserve.allocator)
    workspace = said(reserve.workspace)
    return Reserve(
        context=said(reserve.context),
        desktop=said(reserve.desktop),
        workspace=usual.workspace if workspace is None else workspace,
        allocator=usual.allocator if allocator is None else min(1.0, allocator / total),
        host=usual.host,
    )


def host_of(hardware: HardwareProfile) -> HostMemory:
    """Return the host memory of a profile as a run finds it: less what system and process take."""
    total = int(hardware.host_ram_gib * GIB)
    return HostMemory(total, max(0, total - Reserve().host))


def _bytes(bound: Bound | None, memory: tuple[int, int]) -> int | None:
    return None if bound is None else bound.of(*memory)
