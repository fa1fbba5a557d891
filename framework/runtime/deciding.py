"""Before anything is loaded: where everything goes and what to expect, said in a line and recorded. No torch at import.

Whatever `residency=auto` leaves open is decided here, once for a configuration; loader and runner see nothing else.
"""

from collections.abc import Mapping
from dataclasses import asdict, replace

from framework.errors import FrameworkError
from framework.graph import Graph
from framework.memory.host_budget import read_host_memory
from framework.planning.machine import resolve_hardware
from framework.planning.next_best import next_best
from framework.planning.plan import Plan, Planner
from framework.planning.plan_data import decided
from framework.planning.wishes import settled
from framework.platforms import kind_of
from framework.runtime.events import EventBus, Note, PlanMade
from framework.runtime.expectations import Expectations
from framework.runtime.own_devices import own_devices, refuse_to_plan
from framework.spec import Placement, RunSpec

CPU, SIM = "cpu", "sim"
OUR_STAGES = "stages."


def decide(spec: RunSpec, graph: Graph, events: EventBus) -> RunSpec:
    """Return `spec` with every placement decided, and hold the run against its forecast from then on.

    Raises `CannotFit`, `LoadError` and `PlanError` where the planner is to decide and cannot; where the config has
    decided already, a line says that there is no forecast.
    """
    kind = kind_of(spec.device)
    if kind == CPU:
        return _all_resident(spec, events)
    refuse_to_plan(spec, graph)
    if own_devices(spec, graph):
        events.emit(Note("no forecast: a plan knows one device"))
        return spec
    try:
        plan = _plan(spec, graph, kind)
    except FrameworkError as error:
        if spec.planned:
            raise
        events.emit(Note(f"no forecast: {str(error).splitlines()[0]}"))
        return spec
    if plan is None:
        return spec
    chosen = replace(decided(spec, plan), next_best=next_best(plan, spec.placements))
    for note in chosen.notes[len(spec.notes) :]:
        events.emit(Note(note))
    assert chosen.plan is not None
    events.emit(PlanMade(chosen.plan, tuple(asdict(placement) for placement in chosen.placements.values())))
    events.subscribe(Expectations(plan, len(spec.requests), events))
    return chosen


def _plan(spec: RunSpec, graph: Graph, kind: str) -> Plan | None:
    """Plan on the machine at hand; None where that would take a pass that nobody has asked for.

    Without a plan to decide, a forecast of a rehearsal is made from stored work alone, and so is one of stages that
    others wrote: they may do more than compute.
    """
    own = all(node.stage_class.__module__.startswith(OUR_STAGES) for node in graph.nodes)
    planner = Planner(connect=False, host=read_host_memory(), passes=spec.planned or (own and kind != SIM))
    return planner.plan_if_known(spec, graph, resolve_hardware(spec.config.get("hardware"), spec.device))


def _all_resident(spec: RunSpec, events: EventBus) -> RunSpec:
    if not spec.planned:
        return spec
    events.emit(Note("on the CPU every component is resident: there is nothing to plan"))
    placements: Mapping[str, Placement] = {name: settled(one) for name, one in spec.placements.items()}
    return replace(spec, placements=placements, planned=False)
