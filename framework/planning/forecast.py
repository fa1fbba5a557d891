"""From placements to the forecast of a whole run: peaks, times and what binds each stage. No torch."""

from collections import defaultdict
from collections.abc import Mapping

from framework.planning.facts import Choice, Forecast, StageForecast
from framework.planning.host import HostUse, file_bytes, host_use
from framework.planning.memory import StagePeak, stage_peaks
from framework.planning.problem import PlanProblem
from framework.planning.rates import Rates
from framework.planning.streaming import Traffic
from framework.planning.timing import Cost, Passes, around, load_seconds, span_costs
from framework.planning.uses import Life, live_through

NO_TRAFFIC = Traffic((), ())
BOUNDS = ("compute", "bus", "host", "disk")


def forecast(
    problem: PlanProblem, choices: Mapping[str, Choice], life: Life | None = None, rates: Rates | None = None
) -> Forecast:
    """Predict one request of `problem` with `choices`, a choice for every component of known size."""
    life = life or live_through(problem.work, problem.uses)
    rates = rates or problem.make_rates()
    host = host_use(problem, choices)
    costs = _costs(problem, choices, life, host, rates)
    peaks = stage_peaks(problem, choices, life)
    costs += [around(stage.stage, stage.outside, rates) for stage in problem.work.stages]
    by_stage = defaultdict[str, list[Cost]](list)
    for cost in costs:
        by_stage[cost.stage].append(cost)
    stages = tuple(_stage(peak, by_stage[peak.stage]) for peak in peaks)
    load_s = sum(
        load_seconds(problem.components[name], choices[name], host.traffic.get(name), rates) for name in problem.known
    )
    return Forecast(
        stages=stages,
        load_s=load_s,
        seconds=load_s + sum(stage.seconds for stage in stages),
        peak_bytes=max((stage.peak_bytes for stage in stages), default=0),
        pinned_bytes=host.pinned_bytes,
        host_bytes=host.host_bytes,
        disk_bytes=_disk_bytes(problem, costs, rates),
        unknown=problem.unknown,
    )


def _costs(problem: PlanProblem, choices: Mapping[str, Choice], life: Life, host: HostUse, rates: Rates) -> list[Cost]:
    found: list[Cost] = []
    passes: Passes = {}
    for span in life.spans:
        sizes = problem.components.get(span.component)
        if sizes is not None and span.component in choices:
            traffic = host.traffic.get(span.component, NO_TRAFFIC)
            parked = span.component in problem.parked
            found += span_costs(span, sizes, choices[span.component], traffic, rates, parked, passes)
    return found


def _disk_bytes(problem: PlanProblem, costs: list[Cost], rates: Rates) -> int:
    """Bytes read from disk: once to load, and again for whatever stays in its file."""
    again = sum(cost.disk_s for cost in costs) / rates.disk_s
    once = sum(file_bytes(problem.components[name]) for name in problem.known)
    return once + round(again)


def _stage(peak: StagePeak, costs: list[Cost]) -> StageForecast:
    busy = (
        sum(cost.compute_s for cost in costs),
        sum(cost.copy_s for cost in costs),
        sum(cost.host_s for cost in costs),
        sum(cost.disk_s for cost in costs),
    )
    seconds = sum(cost.seconds for cost in costs)
    return StageForecast(
        stage=peak.stage,
        seconds=seconds,
        compute_s=busy[0],
        copy_s=busy[1],
        stall_s=max(0.0, seconds - busy[0]),
        peak_bytes=peak.size_bytes,
        peak_parts=peak.parts,
        moved_bytes=sum(cost.moved_bytes for cost in costs),
        bound_by=BOUNDS[max(range(4), key=lambda i: busy[i])],
    )
