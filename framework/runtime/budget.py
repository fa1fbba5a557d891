"""The bounds of a run in bytes of this machine, and their guard before a weight is read. Imports torch."""

import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from framework.errors import PlanError
from framework.graph import Graph
from framework.loading.components import Part, find_part
from framework.loading.headers import own_dtype
from framework.loading.index import read_index
from framework.loading.source import locate_model
from framework.memory.host_budget import read_host_memory
from framework.planning.facts import Budgets
from framework.platforms.protocol import Platform
from framework.quantization import Quantization
from framework.runtime.sharing import MIB, WHOLE, Footprint, check_fit
from framework.spec import EMPTY, BudgetSpec, PipelineSpec, Placement

RESIDENT = "resident"


@contextmanager
def bounded(platform: Platform, budget: BudgetSpec) -> Iterator[Budgets]:
    """Put the bound of device memory in force for the block and give all bounds in bytes, None where there is none.

    Raises `ConfigError` for a device whose memory cannot be bounded.
    """
    budgets = measure(platform, budget)
    if budgets.device is not None:
        platform.cap(budgets.device)
    try:
        yield budgets
    finally:
        if budgets.device is not None:
            platform.cap(None)


def measure(platform: Platform, budget: BudgetSpec) -> Budgets:
    """Return the bounds in bytes as things stand now; that of the disk is `disk_bytes`, for it has no place yet."""
    host, device = read_host_memory(), platform.memory()
    of_host = {
        name: bound.of(host.total_bytes, host.available_bytes)
        for name, bound in (("pinned", budget.pinned), ("host", budget.host))
        if bound is not None
    }
    own = budget.device
    return Budgets(device=None if own is None else own.of(device.total_bytes, device.free_bytes), **of_host)


def disk_bytes(budget: BudgetSpec, folder: Path) -> int | None:
    """Return the bound of what may be kept below `folder`, by the disk it lies on; None: no bound."""
    if budget.disk is None:
        return None
    there = next(parent for parent in (folder, *folder.parents) if parent.exists())
    usage = shutil.disk_usage(there)
    return budget.disk.of(usage.total, usage.free)


def refuse_before_loading(
    pipeline: PipelineSpec,
    graph: Graph,
    placements: Mapping[str, Placement],
    platform: Platform,
    budgets: Budgets,
    quantized: Mapping[str, Quantization] = EMPTY,
    elsewhere: Mapping[str, Platform] = EMPTY,
) -> None:
    """Refuse what the headers alone show to be too large for the device or for `budget.host`.

    Each device holds its own components: those `elsewhere` are weighed against theirs.

    Streamed components are counted with nothing here: what their ring needs is known once they are built. Raises
    `PlanError` and what finding a component raises.
    """
    index = read_index(locate_model(pipeline.model, pipeline.hints))
    names = [name for name in sorted(graph.used_components()) if index.components.get(name) is not None]
    parts = [
        find_part(index, pipeline.model, pipeline.components[name], quantization=quantized.get(name)) for name in names
    ]
    parts = [part for part in parts if part.is_module]
    modes = {part.name: placements[part.name].mode for part in parts}
    for one in {id(one): one for one in (platform, *elsewhere.values())}.values():
        if not one.unified:
            there = {part.name: elsewhere.get(part.name, platform) is one for part in parts}
            sizes = {p.name: _least(p, modes[p.name]) if there[p.name] else Footprint(0, 0) for p in parts}
            check_fit(graph, modes, sizes, one.memory().free_bytes, budgets.device is not None)
    if budgets.host is not None:
        _check_host(parts, modes, platform.kind == "cpu", budgets.host)


def _least(part: Part, mode: str) -> Footprint:
    """What a component takes of the device at least."""
    size = part.run_bytes if mode in (RESIDENT, WHOLE) else 0
    return Footprint(size, size if mode == RESIDENT else 0)


def _check_host(parts: list[Part], modes: Mapping[str, str], on_cpu: bool, limit_bytes: int) -> None:
    """Weights in another dtype than the file's are made on the host, and stay there unless they are resident."""
    held, largest, kept = 0, 0, []
    for part in parts:
        size = part.run_bytes if on_cpu or _is_cast(part) or part.quantization is not None else 0
        stays = on_cpu or modes[part.name] != RESIDENT
        held += size if stays else 0
        largest = max(largest, 0 if stays else size)
        kept += [part.name] if size else []
    if held + largest > limit_bytes:
        why = "on the cpu all weights" if on_cpu else "in another dtype than the file's, the weights"
        raise PlanError(
            f"{why} of {', '.join(kept)} take {(held + largest) / MIB:.1f} MiB of host memory, and budget.host is "
            f"{limit_bytes / MIB:.1f} MiB; raise it" + ("" if on_cpu else ", or set pipeline.model.dtype=null")
        )


def _is_cast(part: Part) -> bool:
    stored = own_dtype(tuple(file for file in part.files if file.suffix == ".safetensors"))
    return part.dtype is not None and part.dtype != stored
