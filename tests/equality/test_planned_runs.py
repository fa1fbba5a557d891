"""What the planner foretells of the equality suite's plans is what the simulated machine measures.

Peaks to the byte, times within three per cent; memory of the plan is enough, and a granule less fails in the stage that
the plan names. By default a few plans; all of them with `-m slow`.
"""

import sys
from collections.abc import Callable
from dataclasses import dataclass, replace

import equality_rig
import pytest
import spec_builders
from equality_cases import Plan, selection
from equality_rig import AMPLE, SCARCE_PIN_BYTES, STAGING_BYTES, Rig, Subject, placements

from framework.planning.facts import Budgets, Forecast, RunWork
from framework.planning.forecast import forecast
from framework.planning.inventory import inventory
from framework.planning.problem import NO_RESERVE, PlanProblem
from framework.planning.profile_run import profile_request
from framework.planning.profile_source import describe
from framework.planning.wishes import choice_of
from framework.platforms.hardware import DEFAULT_SIM_HARDWARE, load_hardware
from framework.runtime.events import Event, MemoryMeasured, StageFinished

pytestmark = pytest.mark.equality

Subjects = Callable[[str], Subject]
ALL = selection()
FEW = [ALL[0], ALL[2]]
CASES = [*FEW, *(pytest.param(*one, marks=pytest.mark.slow) for one in ALL if one not in FEW)]
TIGHT = [FEW[0], *(pytest.param(*one, marks=pytest.mark.slow) for one in ALL if one != FEW[0])]


@dataclass
class Measured:
    """One request: peak bytes and virtual seconds by stage, and the peak with loading."""

    peaks: dict[str, int]
    seconds: dict[str, float]
    peak_bytes: int


WORKS: dict[str, RunWork] = {}


def work_of(name: str, subject: Subject) -> RunWork:
    if name not in WORKS:
        request = subject.requests[0]
        run_spec = spec_builders.run_spec(subject.spec, request)
        WORKS[name] = profile_request(run_spec, subject.graph, request, describe(subject.spec), "sim")[0]
    return WORKS[name]


def foretell(name: str, subject: Subject, plan: Plan) -> Forecast:
    sizes = inventory(subject.spec, subject.graph.used_components(), connect=False)
    placed = placements(subject.spec, plan)
    problem = PlanProblem(
        components=sizes,
        work=work_of(name, subject),
        uses={node.spec.name: node.component_uses for node in subject.graph.nodes},
        hardware=load_hardware(DEFAULT_SIM_HARDWARE),
        budgets=Budgets(pinned={"pinned": None, "scarce": SCARCE_PIN_BYTES}.get(plan.tier, 0)),
        reserve=NO_RESERVE,
        host=AMPLE,
    )
    choices = {name: choice_of(placed.get(name), one) for name, one in sizes.items()}
    if plan.tier == "mapped":
        choices = {n: replace(one, tier="mapped") if one.mode != "resident" else one for n, one in choices.items()}
    # The simulated host reads its files and fills its buffers in no time.
    rates = replace(problem.make_rates(), staging_bytes=STAGING_BYTES, stage_s=0.0, disk_s=1e-18)
    return forecast(problem, choices, rates=rates)


def measure(subject: Subject, plan: Plan, capacity_bytes: int | None = None) -> Measured:
    rig = Rig(subject, plan, capacity_bytes=capacity_bytes)
    found = Measured({}, {}, 0)

    def hear(event: Event) -> None:
        if isinstance(event, StageFinished):
            found.peaks[event.stage] = event.device_peak_bytes or 0
            found.seconds[event.stage] = event.device_seconds or 0.0

    rig.watchers.append(hear)
    found.peak_bytes = rig.run(subject.requests[:1]).peak_bytes
    rig.close()
    return found


@pytest.mark.parametrize(("name", "plan"), CASES, ids=lambda value: str(value))
def test_the_forecast_of_a_plan_is_what_the_machine_measures(name: str, plan: Plan, subjects: Subjects) -> None:
    foretold, measured = foretell(name, subjects(name), plan), measure(subjects(name), plan)
    assert {stage.stage: stage.peak_bytes for stage in foretold.stages} == measured.peaks
    total = sum(stage.seconds for stage in foretold.stages)
    assert total == pytest.approx(sum(measured.seconds.values()), rel=0.03)


@pytest.mark.parametrize(("name", "plan"), TIGHT, ids=lambda value: str(value))
def test_a_machine_as_large_as_planned_is_enough_and_a_granule_less_is_not(
    name: str, plan: Plan, subjects: Subjects
) -> None:
    foretold = foretell(name, subjects(name), plan)
    highest = max(foretold.stages, key=lambda stage: stage.peak_bytes)
    assert measure(subjects(name), plan, foretold.peak_bytes).peaks[highest.stage] == foretold.peak_bytes
    short = Rig(subjects(name), plan, capacity_bytes=foretold.peak_bytes - 512)
    with pytest.raises(Exception, match=f"(?s)'{highest.stage}'.*out of memory"):
        short.run(subjects(name).requests[:1])
    short.close()


@pytest.mark.parametrize("mode", ["component-offload", pytest.param("layerwise-offload", marks=pytest.mark.slow)])
def test_a_cached_prompt_leaves_the_encoder_where_it_is_and_a_new_one_fits_the_plan(
    mode: str, subjects: Subjects, monkeypatch: pytest.MonkeyPatch
) -> None:
    """ME-10: prompts A, A, B with resident denoisers; the plan's peak has a prompt that nobody has seen in it."""
    subject, plan = subjects("wan22"), Plan(mode)
    streamed = placements(subject.spec, plan)
    mixed = {n: one if one.group == "text_encoder" else replace(one, mode="resident") for n, one in streamed.items()}
    for module in (equality_rig, sys.modules[__name__]):
        monkeypatch.setattr(module, "placements", lambda spec, plan: mixed)
    first = subject.requests[0]
    requests = (first, replace(first, seeds=(8,)), replace(first, prompt="two dogs", seeds=(9,)))
    rig = Rig(subject, plan, capacity_bytes=foretell("wan22", subject, plan).peak_bytes)
    moved = []

    def hear(event: Event) -> None:
        if isinstance(event, MemoryMeasured):
            moved.append(event.moved_bytes.get("text_encoder"))

    rig.watchers.append(hear)
    rig.run(requests)
    rig.close()
    assert moved[0]
    assert moved[1] is None
    assert moved[2] == moved[0]
