"""Which components of a run have a device of their own. No torch."""

from framework.errors import PlanError
from framework.graph import Graph
from framework.spec import RunSpec


def own_devices(spec: RunSpec, graph: Graph) -> dict[str, str]:
    """Return the device of each used component that has another one than the run."""
    run = _number(spec.device)
    wanted = {name: part.device for name, part in spec.pipeline.components.items() if name in graph.used_components()}
    return {name: device for name, device in sorted(wanted.items()) if device is not None and _number(device) != run}


def refuse_to_plan(spec: RunSpec, graph: Graph) -> None:
    """Raise `PlanError` where the planner is to place components of several devices."""
    if spec.planned:
        refuse_several(spec, graph, "residency=auto plans one device", ": choose another residency")


def refuse_several(spec: RunSpec, graph: Graph, reason: str = "a plan knows one device", hint: str = "") -> None:
    """Raise `PlanError` for a run whose components are on several devices."""
    own = own_devices(spec, graph)
    if own:
        listed = ", ".join(f"{name} on {device}" for name, device in own.items())
        raise PlanError(f"{reason}, and there are {listed}{hint}")


def _number(device: str) -> int:
    """Which of the devices of its kind; `cuda` and `auto` mean the first."""
    return int(device.partition(":")[2] or 0)
