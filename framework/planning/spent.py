"""Which rate of a machine the time of a stage goes into: what `calibrate --from-runs` learns from. No torch."""

from collections import defaultdict
from collections.abc import Iterable

from framework.planning.facts import StageForecast, StageWork, Work
from framework.planning.rates import Rates

RATE_OF = {"bus": "h2d_pinned_gbps", "host": "h2d_pageable_gbps", "disk": "disk_gbps"}
MEMORY, LAUNCH = "memory_gbps", "launch_us"


def spent(stage: StageForecast, work: StageWork, rates: Rates) -> dict[str, float]:
    """Return the seconds of whatever bounds `stage`, by the rate they depend on.

    Where kernels bound it, these are the kinds of kernels; where their launches take longer, the launches.
    """
    if stage.bound_by in RATE_OF:
        busy = stage.copy_s if stage.bound_by == "bus" else stage.seconds
        return {RATE_OF[stage.bound_by]: min(busy, stage.seconds)}
    kernels: dict[str, float] = defaultdict(float)
    launches = 0
    for one, count in _stretches(work):
        launches += one.launches * count
        _add(kernels, one, count, rates)
    launching = launches * rates.launch_s
    return {LAUNCH: min(launching, stage.seconds)} if launching > sum(kernels.values()) else dict(kernels)


def _stretches(work: StageWork) -> Iterable[tuple[Work, int]]:
    """Every stretch of work with how often it is done; layers alike share one object and come once."""
    yield work.outside, 1
    for counted in work.calls:
        call = counted.call
        yield call.before, counted.count
        yield call.after, counted.count
        alike: dict[int, tuple[Work, int]] = {}
        for layer in call.layer_work:
            alike[id(layer)] = layer, alike.get(id(layer), (layer, 0))[1] + counted.count
        yield from alike.values()


def _add(kernels: dict[str, float], work: Work, count: int, rates: Rates) -> None:
    """Count each kernel for its arithmetic or for its traffic, whichever takes longer."""
    peak = rates.peak(work.dtype)
    parts = [(one.kind, one.flops, one.size_bytes, one.count) for one in work.kernels]
    if not parts:  # a sum, as in a sheet: its traffic is spread over its arithmetic
        kinds = {"matmul": work.matmul_flops, "attention": work.attention_flops, "conv": work.conv_flops}
        parts = [(kind, flops, 0, 1) for kind, flops in kinds.items() if flops]
    for kind, flops, size_bytes, times in parts:
        moving = size_bytes * rates.memory_s
        computing = flops / peak[kind] if kind else 0.0
        rate = f"{kind}_tflops" if computing > moving else MEMORY
        kernels[rate] += max(moving, computing) * times * count
