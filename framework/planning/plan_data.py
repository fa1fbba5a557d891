"""A plan as plain data: what `plan --json` prints, the record stores and charts are drawn from. No torch.

Sizes are bytes, times seconds. `decided` lays the plan into a run's spec, whose only source of placements it is then.
"""

from collections.abc import Mapping
from dataclasses import asdict, replace
from typing import Any

from framework.calibration.measured import known_rates, rates_of_profile
from framework.planning.clock import MAPPED, PINNED
from framework.planning.facts import Choice, ComponentSizes, StageForecast
from framework.planning.host import HostUse, host_use, traffic_tiers
from framework.planning.plan import Plan
from framework.planning.problem import LAYERWISE
from framework.planning.spent import spent
from framework.planning.streaming import Traffic
from framework.planning.wishes import placed_by
from framework.spec import RequestSpec, RunSpec

SHOWN = ("height", "width", "num_frames", "num_inference_steps", "guidance_scale", "num_outputs")


def plan_data(plan: Plan) -> dict[str, Any]:
    """Return everything a plan says."""
    problem, foretold = plan.problem, plan.forecast
    host = host_use(problem, {name: plan.choices[name] for name in problem.known})
    selection = plan.selection
    return {
        "hardware": plan.machine.profile.name,
        "device_key": plan.machine.key,
        "rates": known_rates(rates_of_profile(plan.machine.profile)),
        "device_bytes": problem.device_bytes,
        "available_host_bytes": problem.host_memory.available_bytes,
        "request": _request(plan.request),
        "vae_tiling": plan.numerics.vae_tiling,
        "planned": selection is not None,
        "preset": selection.preset if selection is not None else None,
        "components": {
            name: _component(problem.components[name], choice, host.traffic.get(name))
            for name, choice in plan.choices.items()
        },
        "stages": [_stage(plan, stage, host) for stage in foretold.stages],
        "load_s": foretold.load_s,
        "seconds": foretold.seconds,
        "peak_bytes": foretold.peak_bytes,
        "host_bytes": foretold.host_bytes,
        "pinned_bytes": foretold.pinned_bytes,
        "disk_bytes": foretold.disk_bytes,
        "unknown": list(foretold.unknown),
        "exact": problem.work.exact,
        "presets": dict(selection.presets) if selection is not None else {},
        "notes": list(plan.notes),
    }


def decided(spec: RunSpec, plan: Plan) -> RunSpec:
    """Return the spec with every placement, host tier and numeric choice as planned, and the plan for the record."""
    data, notes = plan_data(plan), spec.notes
    tiled = tuple(note for note in plan.notes if plan.tiles and note.startswith("numerics."))
    if plan.selection is not None:
        notes = (*notes, plan_line(data), *tiled)
    placements = placed_by(plan.choices, spec.placements) if plan.selection is not None else spec.placements
    numerics = replace(spec.numerics, vae_tiling=plan.numerics.vae_tiling)
    return replace(spec, placements=placements, numerics=numerics, notes=notes, plan=data, planned=False)


def plan_line(data: Mapping[str, Any]) -> str:
    """Say in one line where everything goes and what it comes to."""
    parts = [f"{name} {describe(one)}" for name, one in data["components"].items()]
    return (
        f"plan for {data['hardware']}: {'; '.join(parts)}; {gigabytes(data['peak_bytes'])} of "
        f"{gigabytes(data['device_bytes'])} at the peak, {data['seconds']:.1f} s with loading"
    )


def describe(component: Mapping[str, Any]) -> str:
    """Mode and knobs of one component in few words."""
    tier = {MAPPED: ", from its file", "pageable": ", not pinned"}.get(component["tier"], "")
    if component["mode"] != LAYERWISE:
        return f"{component['mode']}{tier}"
    kept = "+".join(map(str, component["resident"]))
    layers = "+".join(map(str, component["layers"]))
    ahead = max(component["prefetch"], default=0)
    return f"{component['mode']} ({ahead} ahead, {kept} of {layers} stay{tier})"


def gigabytes(size_bytes: float) -> str:
    """Bytes in GB of 10^9, as the planner's sentences have them."""
    if not size_bytes:
        return "nothing"
    return f"{size_bytes / 1e9:.1f} GB" if size_bytes >= 5e7 else f"{size_bytes / 1e6:.1f} MB"


def _request(request: RequestSpec) -> dict[str, Any]:
    return {name: value for name in SHOWN if (value := getattr(request, name)) is not None}


def _component(sizes: ComponentSizes, choice: Choice, traffic: Traffic | None) -> dict[str, Any]:
    return {
        "group": sizes.group,
        **{key: value for key, value in asdict(choice).items() if key != "component"},
        "layers": [len(stack.layers) for stack in sizes.stacks],
        "size_bytes": sizes.size_bytes,
        "dtype": sizes.dtype,
        "source": sizes.source,
        **_host_bytes(traffic),
    }


def _stage(plan: Plan, stage: StageForecast, host: HostUse) -> dict[str, Any]:
    work = next(one for one in plan.problem.work.stages if one.stage == stage.stage)
    names = list(dict.fromkeys(counted.call.component for counted in work.calls))
    kept = [_host_bytes(host.traffic.get(name)) for name in names]
    return {
        "stage": stage.stage,
        "components": names,
        "seconds": stage.seconds,
        "compute_s": stage.compute_s,
        "copy_s": stage.copy_s,
        "stall_s": stage.stall_s,
        "bound_by": "memory" if _waits_for_memory(stage) else stage.bound_by,
        "device_peak_bytes": stage.peak_bytes,
        "parts": dict(stage.peak_parts),
        "moved_bytes": stage.moved_bytes,
        "spent_s": spent(stage, work, plan.problem.make_rates()),
        **{key: sum(one[key] for one in kept) for key in ("host_bytes", "pinned_bytes", "mapped_bytes")},
    }


def _waits_for_memory(stage: StageForecast) -> bool:
    """Compute is the longest of all, and yet it mostly waits: nothing can be fetched beside it for want of room."""
    return stage.bound_by == "compute" and stage.stall_s > stage.compute_s


def _host_bytes(traffic: Traffic | None) -> dict[str, int]:
    """Bytes of a component on the host: in its own memory, page-locked within that, and left in the file."""
    found = {"host_bytes": 0, "pinned_bytes": 0, "mapped_bytes": 0}
    if traffic is None or not traffic_tiers(traffic):
        return found
    parts = [*zip(traffic.layer_bytes, traffic.tiers, strict=True), *traffic.rest]
    for size, tier in parts:
        if tier == MAPPED:
            found["mapped_bytes"] += size
        elif tier != "device":
            found["host_bytes"] += size
            found["pinned_bytes"] += size if tier == PINNED else 0
    return found
