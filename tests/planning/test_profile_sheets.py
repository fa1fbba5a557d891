"""Checkpoints that are not on this machine: their sheets are enough to foresee a request of full size."""

from pathlib import Path

import pytest

from framework.compose.arguments import Flags
from framework.compose.composer import compose
from framework.graph import build_graph
from framework.planning.facts import RunWork
from framework.planning.profile_run import profile_request
from framework.planning.profile_source import describe

CONF = Path(__file__).parents[2] / "conf" / "pipeline"
OTHERS = sorted(path.stem for path in CONF.glob("*.yaml") if path.stem not in ("diffusers", "digits"))


@pytest.fixture(autouse=True)
def offline(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.setenv("FRAMEWORK_CACHE", str(tmp_path))


def foresee(*words: str) -> RunWork:
    spec = compose(list(words), Flags())
    described = describe(spec.pipeline)
    return profile_request(spec, build_graph(spec.pipeline), spec.requests[0], described, "cuda")[0]


def test_a_sheet_is_enough_for_calls_steps_and_a_note() -> None:
    work = foresee("pipeline=ltx", "request.height=256", "request.width=256", "request.num_frames=9")
    calls = {one.call.component: one for stage in work.stages for one in stage.calls}
    assert calls["transformer"].steps == (1, calls["transformer"].count)
    assert calls["vae"].call.entry_point == "decode"
    assert not work.exact
    assert "sheet" in work.notes[0]


def test_a_pipeline_that_starts_from_a_picture_is_foreseen_without_one() -> None:
    sizes = ("request.height=256", "request.width=256", "request.num_frames=9", "request.num_inference_steps=2")
    work = foresee("pipeline=ltx_i2v", *sizes)
    entries = [(one.call.component, one.call.entry_point) for stage in work.stages for one in stage.calls]
    assert ("vae", "encode") in entries


@pytest.mark.slow
@pytest.mark.parametrize("name", OTHERS)
def test_every_shipped_pipeline_is_foreseen_from_its_sheet(name: str) -> None:
    work = foresee(f"pipeline={name}")
    assert all(stage.calls or stage.stage in ("export", "condition") for stage in work.stages)
    assert sum(one.count for stage in work.stages for one in stage.calls if one.steps is not None) > 0
