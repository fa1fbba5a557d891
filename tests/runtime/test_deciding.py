"""What is left to the planner is decided once, before anything is loaded, and the run is held against its forecast."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import shipped_works
import spec_builders

from framework.errors import PlanError
from framework.graph import build_graph
from framework.planning import plan as plans
from framework.platforms.hardware import load_hardware
from framework.runtime.deciding import decide
from framework.runtime.events import (
    Event,
    EventBus,
    MemoryMeasured,
    Note,
    PlanChecked,
    PlanMade,
    RequestFinished,
    StageFinished,
    StepDone,
)
from framework.runtime.expectations import Expectations
from framework.runtime.run import execute
from framework.spec import Bound, BudgetSpec, Placement, RunSpec

SIM = {"hardware": {"name": "auto"}}


class Heard(list[Event]):
    """Events to look at later; a step's own would keep its latents on the device."""

    def __call__(self, event: Event) -> None:
        if not isinstance(event, StepDone):
            self.append(event)


@pytest.fixture
def heard() -> Heard:
    return Heard()


@pytest.fixture
def auto(tiny_folder: Callable[[str], Path]) -> RunSpec:
    """A tiny pipeline on the simulated device, everything left to the planner."""
    pipeline = spec_builders.pipeline("wan22", tiny_folder)
    left = {
        name: Placement(component=name, group=part.group, mode="auto") for name, part in pipeline.components.items()
    }
    spec = spec_builders.run_spec(pipeline, spec_builders.request(num_frames=5, num_inference_steps=2))
    return replace(spec, device="sim", config=SIM, placements=left, planned=True)


def notes(heard: list[Event]) -> list[str]:
    return [event.text for event in heard if isinstance(event, Note)]


def with_budget(spec: RunSpec, size_bytes: int) -> RunSpec:
    return replace(spec, budget=BudgetSpec(device=Bound(str(size_bytes), size_bytes=size_bytes)))


def test_a_run_goes_by_its_plan_and_measures_what_was_foretold(auto: RunSpec, heard: Heard) -> None:
    execute(with_budget(auto, 800_000), build_graph(auto.pipeline), EventBus(heard))
    assert sum(line.startswith("plan for rtx_4090: ") for line in notes(heard)) == 1
    made = next(event for event in heard if isinstance(event, PlanMade))
    modes = {placement["mode"] for placement in made.placements}
    assert "auto" not in modes
    assert modes != {"resident"}, "the budget has room for everything"
    assert made.plan["peak_bytes"] <= 800_000
    checked = next(event for event in heard if isinstance(event, PlanChecked))
    assert list(checked.stages) == ["encode_prompt", "denoise", "decode", "export"]
    for stage in checked.stages.values():
        assert stage["measured_peak_bytes"] == stage["expected_peak_bytes"]
        assert stage["measured_s"] == pytest.approx(stage["expected_s"], rel=0.03)
    assert not [line for line in notes(heard) if "were expected" in line]


@pytest.mark.parametrize("mode", ["auto", "resident", "component-offload", "layerwise-offload"])
def test_what_cannot_fit_is_refused_before_a_weight_is_read(mode: str, auto: RunSpec, heard: Heard) -> None:
    """ME-09: a card with less than a layer; figures and the smallest change are in the message."""
    placed = {name: replace(one, mode=mode) for name, one in auto.placements.items()}
    spec = with_budget(replace(auto, placements=placed), 100_000)
    with pytest.raises(
        PlanError,
        match=r"stage '\w+' needs .* of device memory, and there is 0.1 MB by budget.device; what would fit: ",
    ):
        execute(spec, build_graph(spec.pipeline), EventBus(heard))
    assert not [event for event in heard if type(event).__name__.startswith("Component")]


def test_on_the_processor_everything_is_resident_and_a_line_says_so(auto: RunSpec, heard: Heard) -> None:
    decided = decide(replace(auto, device="cpu"), build_graph(auto.pipeline), EventBus(heard))
    assert {placement.mode for placement in decided.placements.values()} == {"resident"}
    assert not decided.planned
    assert notes(heard) == ["on the CPU every component is resident: there is nothing to plan"]


def test_what_the_user_has_fixed_stays(auto: RunSpec, heard: Heard) -> None:
    placed = {**auto.placements, "vae": replace(auto.placements["vae"], mode="component-offload")}
    decided = decide(replace(auto, placements=placed), build_graph(auto.pipeline), EventBus(heard))
    assert decided.placements["vae"].mode == "component-offload"
    assert decided.placements["transformer"].mode == "resident"


def test_a_rehearsal_without_stored_work_makes_no_pass(
    auto: RunSpec, heard: Heard, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FRAMEWORK_CACHE", str(tmp_path))
    monkeypatch.setattr(plans, "work_of", lambda *args, **kwargs: pytest.fail("a pass was made"))
    placed = {name: replace(one, mode="resident") for name, one in auto.placements.items()}
    spec = replace(auto, placements=placed, planned=False)
    assert decide(spec, build_graph(spec.pipeline), EventBus(heard)) is spec
    assert heard == []


class TestExpectations:
    """A run of an imagined machine, held against a stored plan."""

    @pytest.fixture
    def plan(self) -> plans.Plan:
        return shipped_works.plan("flux1_dev", load_hardware("rtx_4090"), "low_vram")

    @staticmethod
    def hear(plan: plans.Plan, late: dict[str, int] | None = None, **changed: dict[str, Any]) -> list[str]:
        """Return the notes of a request that went as foretold, but for `changed` stages and what came `late`."""
        told: list[Event] = []
        check = Expectations(plan, 1, EventBus(told.append))
        for stage in plan.forecast.stages:
            own = {"seconds": stage.seconds, "device_peak_bytes": stage.peak_bytes, **changed.get(stage.stage, {})}
            check(StageFinished(0, stage.stage, **own))
        check(MemoryMeasured(0, plan.forecast.peak_bytes, {}, offloaded_bytes=late or {}))
        check(RequestFinished(0, 1.0))
        assert isinstance(told[0], PlanChecked)
        return notes(told)

    def test_a_slow_stage_is_told_with_what_bounds_it(self, plan: plans.Plan) -> None:
        lines = [line for line in self.hear(plan, denoise={"seconds": 10_000.0}) if "were expected" in line]
        assert len(lines) == 1
        assert lines[0].startswith("denoise took 10000.00 s and ")
        assert "it is bound by " in lines[0]

    def test_more_memory_than_planned_is_told_with_its_part(self, plan: plans.Plan) -> None:
        lines = [
            line for line in self.hear(plan, decode={"device_peak_bytes": 15_000_000_000}) if "were expected" in line
        ]
        assert len(lines) == 1
        assert lines[0].startswith("decode took 15.0 GB of device memory and ")
        assert "so it is activations (" in lines[0]

    def test_less_than_a_tenth_is_not_told(self, plan: plans.Plan) -> None:
        own = {stage.stage: {"seconds": stage.seconds * 1.09} for stage in plan.forecast.stages}
        assert not [line for line in self.hear(plan, **own) if "were expected" in line]

    def test_what_could_have_stayed_is_named_with_the_word_for_it(self, plan: plans.Plan) -> None:
        lines = [line for line in self.hear(plan) if "could have stayed" in line]
        assert any(line.endswith("component_residency.vae=resident") for line in lines)
        assert not any(line.startswith("transformer ") for line in lines)

    def test_so_is_what_only_the_run_has_found(self, plan: plans.Plan) -> None:
        lines = [line for line in self.hear(plan, late={"adapter": 10**6, "refiner": 10**12}) if "could have" in line]
        assert lines[0].startswith("adapter (1.0 MB) could have stayed on the device: ")
        assert lines[0].endswith("component_residency.adapter=resident")
        assert not any(line.startswith("refiner ") for line in lines)


def test_a_mode_of_somebodys_own_runs_without_a_forecast(auto: RunSpec, heard: Heard) -> None:
    """Even where the work is known, as after a planned run."""
    graph = build_graph(auto.pipeline)
    decide(auto, graph, EventBus(heard))
    placements = {name: replace(one, mode="my-offload") for name, one in auto.placements.items()}
    fixed = replace(auto, placements=placements, planned=False)
    heard.clear()
    assert decide(fixed, graph, EventBus(heard)) is fixed
    (line,) = notes(heard)
    assert line.startswith("no forecast: nobody can foretell the mode 'my-offload' of component 'text_encoder'")
    with pytest.raises(PlanError, match="nobody can foretell the mode 'my-offload'"):
        decide(replace(fixed, planned=True), graph, EventBus(heard))
