"""What the facts at hand refuse before a job is started, without reading a weight or importing torch."""

from framework.errors import FrameworkError, LoadError, PlanError
from framework.graph import Graph, build_graph
from framework.loading.index import read_configs, read_index
from framework.loading.source import is_hub_name, locate_model
from framework.outputs.hashing import config_sha256
from framework.planning.facts import ComponentSizes
from framework.planning.inventory import inventory
from framework.planning.machine import resolve_hardware
from framework.registry import FAMILIES
from framework.runtime.own_devices import own_devices, refuse_to_plan
from framework.runtime.sharing import WHOLE, Footprint, check_fit
from framework.spec import Placement, RunSpec

RESIDENT = "resident"
Sizes = dict[str, dict[str, ComponentSizes]]
"""What was read of each pipeline, by the hash of what it depends on: a sweep asks a thousand times."""


def refusal_of(spec: RunSpec, jobs_per_device: int = 1, known: Sizes | None = None) -> str | None:
    """Return why `spec` cannot run on its device, None where nothing known speaks against it.

    Asks the family about the requests where the checkpoint is here, and weighs what the placements keep on the device
    at the least against its memory, of which each of `jobs_per_device` has an equal share. Streamed components,
    activations and quantised weights count nothing here, so a job that passes may still not fit.
    """
    try:
        if _is_here(spec):
            _check_requests(spec)
        _check_memory(spec, jobs_per_device, {} if known is None else known)
    except FrameworkError as error:
        return str(error)
    return None


def _is_here(spec: RunSpec) -> bool:
    """Whether the checkpoint is on this machine; one that could be fetched need not be. Raises `LoadError`."""
    try:
        locate_model(spec.pipeline.model, spec.pipeline.hints)
    except LoadError:
        if is_hub_name(spec.pipeline.model.source):
            return False
        raise
    return True


def _check_requests(spec: RunSpec) -> None:
    """What the family finds in the requests from the checkpoint's configs."""
    if spec.pipeline.family is None:
        return
    index = read_index(locate_model(spec.pipeline.model, spec.pipeline.hints))
    family, configs = FAMILIES.get(spec.pipeline.family)(), read_configs(index)
    found = [problem for request in spec.requests for problem in family.check_request(request, index.options, configs)]
    if found:
        raise LoadError("\n".join(dict.fromkeys(str(problem) for problem in found)))


def _check_memory(spec: RunSpec, jobs_per_device: int, known: Sizes) -> None:
    kind = spec.device.partition(":")[0]
    machine = resolve_hardware(spec.config.get("hardware"), spec.device).profile
    if kind in ("cpu", "mps") or machine.unified or machine.vendor == "cpu":
        return
    capacity = machine.capacity_bytes
    if spec.budget.device is not None:
        capacity = min(capacity, spec.budget.device.of(int(machine.memory_gib * 1024**3), capacity))
    graph = build_graph(spec.pipeline)
    refuse_to_plan(spec, graph)
    held, elsewhere = footprints(spec, graph, known), own_devices(spec, graph)
    modes = {name: spec.placements[name].mode for name in held}
    try:
        for device in (None, *dict.fromkeys(elsewhere.values())):
            there = {n: own if elsewhere.get(n) == device else Footprint(0, 0) for n, own in held.items()}
            check_fit(graph, modes, there, capacity // jobs_per_device, spec.budget.device is not None)
    except PlanError as error:
        together = f"{jobs_per_device} jobs share a device: " if jobs_per_device > 1 else ""
        raise PlanError(f"{together}{error}") from None


def footprints(spec: RunSpec, graph: Graph, known: Sizes) -> dict[str, Footprint]:
    """Return what each used component of known size takes of the device at least, in use and between uses."""
    key = config_sha256({"pipeline": spec.config.get("pipeline")})
    if key not in known:
        known[key] = inventory(spec.pipeline, graph.used_components(), connect=False)
    found = {}
    for name, sizes in known[key].items():
        placement = spec.placements.get(name)
        if placement is not None and sizes.size_bytes is not None and name not in spec.numerics.quantize:
            found[name] = _least(placement, sizes.size_bytes)
    return found


def _least(placement: Placement, size_bytes: int) -> Footprint:
    used = size_bytes if placement.mode in (RESIDENT, WHOLE) else 0
    return Footprint(used, size_bytes if placement.mode == RESIDENT else 0)
