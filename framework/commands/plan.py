"""`plan`: whether a request fits a machine, what goes where and why, how long it takes. No torch but for new work."""

import json
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from framework.commands.plan_matrix import TABLE, axes_of, plan_matrix
from framework.commands.plan_spec import finished, make_plan, write
from framework.commands.table import format_table
from framework.compose.arguments import COMPOSING, Flags
from framework.compose.composer import compose_data
from framework.errors import ConfigError, LoadError, PlanError, did_you_mean
from framework.graph import Graph, build_graph
from framework.planning.machine import resolve_hardware
from framework.planning.plan import Plan, Planner, largest_request
from framework.planning.plan_data import describe, plan_data
from framework.planning.refusal import CannotFit
from framework.planning.what_if import fewer_bits, smaller, what_ifs
from framework.report.plan_chart import CHARTS, draw
from framework.report.plan_table import COLUMNS, peak_lines, plan_rows, summary_lines, why_lines
from framework.spec import RunSpec

SUMMARY = "Say before anything is loaded whether a run fits, where every component goes, and how long it takes."
EXAMPLES = (
    "framework plan pipeline=wan2 residency=auto hardware=rtx_4090",
    "framework plan pipeline=wan2 residency=low_vram --why transformer",
    "framework plan pipeline=flux1_dev residency=auto hardware=rtx_3060_12gb,rtx_4090 request.height=768,1024",
)
ACCEPTED = COMPOSING | {"json", "why", "chart"}


def main(overrides: list[str], flags: Flags) -> int:
    """Print the plan, or a row for each combination where words have several values.

    Raises `CannotFit` with stage, figures and what would do.
    """
    fixed, axes = axes_of(overrides, flags)
    _check_chart(flags.chart, CHARTS if not axes else (TABLE,))
    _check_why(flags, several=bool(axes))
    if axes:
        return plan_matrix(fixed, axes, flags)
    spec = finished(compose_data(overrides, flags))
    graph, planner = build_graph(spec.pipeline), Planner()
    try:
        plan = make_plan(planner, spec, graph)
    except CannotFit as refusal:
        _add_ways_out(refusal, planner, spec, graph)
        raise
    _show(planner, spec, plan, flags)
    return 0


def _show(planner: Planner, spec: RunSpec, plan: Plan, flags: Flags) -> None:
    data = plan_data(plan)
    if flags.chart:
        write(Path(flags.chart), draw(data, spec.pipeline.name, html=flags.chart.endswith(".html")))
    if flags.why:
        _print(_why(plan, data, flags.why))
        return
    changes = () if flags.quiet else (*what_ifs(plan), *fewer_bits(planner, spec, plan))
    if flags.json:
        print(json.dumps({**data, "what_if": changes, "alternatives": _alternatives(plan)}, indent=2))
    else:
        _print(_lines(spec, plan, data, changes))


def _check_chart(chart: str | None, kinds: Iterable[str]) -> None:
    if chart is not None and not chart.endswith(tuple(kinds)):
        hint = f"write {' or '.join(f'FILE{kind}' for kind in kinds)}"
        raise ConfigError.of("--chart", f"'{chart}' is no name for it", hint=hint)


def _check_why(flags: Flags, *, several: bool) -> None:
    """An explanation is text about one plan."""
    if flags.why and several:
        raise ConfigError.of("--why", "explains one plan, and these are several", hint="give each key one value")
    if flags.why and flags.json:
        hint = "leave one out; --json has the reasons of all components"
        raise ConfigError.of("--why", "is text, and --json asks for everything as data", hint=hint)


def _lines(spec: RunSpec, plan: Plan, data: Mapping[str, Any], changes: Iterable[str]) -> Iterator[str]:
    shape = ", ".join(f"{name} {value}" for name, value in data["request"].items())
    profile = plan.machine.profile
    yield f"pipeline {spec.pipeline.name} on {profile.name} ({profile.memory_gib:g} GiB): {shape}"
    yield ""
    yield format_table(COLUMNS, plan_rows(data, describe))
    yield ""
    yield from peak_lines(data)
    yield ""
    yield from summary_lines(data)
    yield from (f"note: {line}" for line in (*spec.notes, *plan.notes))
    yield from (f"what if: {line}" for line in changes)


def _why(plan: Plan, data: Mapping[str, Any], component: str) -> Iterator[str]:
    if component not in plan.choices:
        hint = did_you_mean(component, plan.choices)
        raise ConfigError.of("--why", f"the run uses no component '{component}'", hint=hint)
    return why_lines(data, component, _alternatives(plan).get(component, []))


def _alternatives(plan: Plan) -> dict[str, list[str]]:
    """What was nearest to the plan, by component."""
    found: dict[str, list[str]] = {}
    for near in plan.selection.alternatives if plan.selection is not None else ():
        found.setdefault(near.component, []).append(str(near))
    return found


def _add_ways_out(refusal: CannotFit, planner: Planner, spec: RunSpec, graph: Graph) -> None:
    """Say below a refusal which changes of the request would fit."""
    machine = resolve_hardware(spec.config.get("hardware"), spec.device)
    problem = planner.problem(spec, graph, machine, spec.numerics)
    lines = [*smaller(planner, spec, problem, largest_request(spec)), *_tiles(planner, spec, graph)]
    for line in lines:
        refusal.add_note(f"what if: {line}")


def _tiles(planner: Planner, spec: RunSpec, graph: Graph) -> Iterator[str]:
    """Whether tiles alone would do; with everything left to it, the planner has tried that already."""
    if spec.planned or spec.numerics.vae_tiling is True:
        return
    tiled = replace(spec, numerics=replace(spec.numerics, vae_tiling=True))
    with suppress(LoadError, PlanError):  # no VAE that can, or it is not enough
        make_plan(planner, tiled, graph)
        yield "numerics.vae_tiling=true fits (changes the picture)"


def _print(lines: Iterable[str]) -> None:
    for line in lines:
        print(line)
