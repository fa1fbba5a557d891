"""What loaded weights depend on, as text: runs of one key can share them. No torch."""

import json
from collections.abc import Mapping
from typing import Any

from framework.spec import Placement, RunSpec


def load_key(spec: RunSpec, placed: bool = True) -> str:
    """Return text that is equal for runs whose weights are the same, stored alike, and in the same places.

    `placed` False: places do not count, for whoever moves weights. Adapters are not in it: they are merged and undone
    to the bit between runs.
    """
    pipeline = spec.config.get("pipeline") or {}
    parts = {key: value for key, value in pipeline.items() if key not in ("defaults", "args")}
    placements = {name: _placed(placement) for name, placement in spec.placements.items() if placed}
    kept: list[Any] = [pipeline.get("model"), parts, spec.device, spec.config.get("hardware")]
    kept += [repr(spec.numerics), repr(spec.budget), placements]
    return json.dumps(kept, sort_keys=True, default=str)


def can_be_kept(spec: RunSpec) -> bool:
    """False where a bound depends on what is free when the run starts: kept weights would count against it."""
    bounds = (spec.budget.device, spec.budget.pinned, spec.budget.host)
    return not any(bound is not None and bound.size_bytes is None and bound.share is None for bound in bounds)


def _placed(placement: Placement) -> Mapping[str, Any]:
    knobs = {"prefetch": placement.prefetch, "resident": placement.resident}
    written = {name: None if knob is None else knob.written for name, knob in knobs.items()}
    return {"mode": placement.mode, "policy": placement.policy, "lifetime": placement.lifetime, **written}
