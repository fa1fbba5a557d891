"""A plan for Python: does it fit, what goes where and why, how long it takes. No torch but for new work."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Unpack

from framework.api.configs import Config, RequestValues, spec_of
from framework.commands.plan_spec import make_plan
from framework.graph import build_graph
from framework.planning.plan import Plan, Planner
from framework.planning.plan_data import decided, describe, plan_data
from framework.report.plan_table import why_lines
from framework.spec import RunSpec


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedStage:
    """What is expected of one stage. `bound_by` is compute, bus, disk, memory or another resource."""

    name: str
    seconds: float
    compute_s: float
    copy_s: float
    stall_s: float
    device_peak_bytes: int
    bound_by: str


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedComponent:
    """Where one component goes; `text` says mode and knobs in words, `why` has a line for each reason."""

    mode: str
    size_bytes: int
    text: str
    why: tuple[str, ...] = field(repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanResult:
    """A plan that fits. Sizes are bytes, times seconds, `seconds` with loading.

    `spec` is the config as decided, ready for `run` and `open`; `data` is what `plan --json` prints.
    """

    hardware: str
    seconds: float
    load_s: float
    peak_bytes: int
    device_bytes: int
    host_bytes: int
    pinned_bytes: int
    stages: tuple[PlannedStage, ...]
    components: Mapping[str, PlannedComponent]
    notes: tuple[str, ...]
    spec: RunSpec = field(repr=False)
    data: Mapping[str, Any] = field(repr=False)


def plan(config: Config = (), *words: str, **values: Unpack[RequestValues]) -> PlanResult:
    """Plan a run; nothing is loaded.

    Raises `PlanError` where nothing fits, with what would, and `ConfigError`.
    """
    spec = spec_of(config, words, values)
    found = make_plan(Planner(), spec, build_graph(spec.pipeline))
    data = plan_data(found)
    return PlanResult(
        hardware=data["hardware"],
        seconds=data["seconds"],
        load_s=data["load_s"],
        peak_bytes=data["peak_bytes"],
        device_bytes=data["device_bytes"],
        host_bytes=data["host_bytes"],
        pinned_bytes=data["pinned_bytes"],
        stages=tuple(_stage(stage) for stage in data["stages"]),
        components={name: _component(found, data, name) for name in data["components"]},
        notes=(*spec.notes, *found.notes),
        spec=decided(spec, found),
        data=data,
    )


def _stage(stage: Mapping[str, Any]) -> PlannedStage:
    shared = ("seconds", "compute_s", "copy_s", "stall_s", "device_peak_bytes", "bound_by")
    return PlannedStage(name=stage["stage"], **{key: stage[key] for key in shared})


def _component(found: Plan, data: Mapping[str, Any], name: str) -> PlannedComponent:
    own = data["components"][name]
    near = found.selection.alternatives if found.selection is not None else ()
    why = why_lines(data, name, [str(one) for one in near if one.component == name])
    return PlannedComponent(mode=own["mode"], size_bytes=own["size_bytes"], text=describe(own), why=tuple(why))
