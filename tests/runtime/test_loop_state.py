"""The state of a loop, brought back by a fast-forward: equal pictures, and no denoiser called for what was done."""

from collections.abc import Callable
from copy import deepcopy
from inspect import signature
from pathlib import Path
from typing import Any

import pytest
import spec_builders
import torch
import whole_builders
from spec_builders import Recorder, run_spec

from framework.errors import StageError
from framework.graph import build_graph
from framework.runtime import events
from framework.runtime.answers import CallShapes, Record, fresh
from framework.runtime.artifacts import Artifacts
from framework.runtime.resume import Resume
from framework.runtime.run import execute
from framework.runtime.scheduler_seam import around_method
from framework.spec import CheckpointSpec

CPU = torch.device("cpu")
DEFAULT = ("sd15",)
MORE = (
    "hunyuan_video15",
    "flux",
    "sd3",
    "sdxl",
    "qwen_image",
    "zimage",
    "ltx_timed",
    "sana",
    "lumina2",
    "pixart_alpha",
    "chroma",
    "wan22",
)
SCHEDULERS = (
    "UniPCMultistepScheduler", "DPMSolverMultistepScheduler", "EulerAncestralDiscreteScheduler", "PNDMScheduler",
    "HeunDiscreteScheduler", "LMSDiscreteScheduler", "DDPMScheduler", "LCMScheduler",
)  # fmt: skip


class Stop(Exception):
    pass


def stopped_and_resumed(spec: Any, wanted: Any, folder: Path, at: int) -> tuple[torch.Tensor, list[int], list[str]]:
    """Break a run off after a step and go on in another; return its frames, its steps and its notes."""
    graph = build_graph(spec)
    run = run_spec(spec, wanted, checkpoint=CheckpointSpec(every_steps=1))

    def stop(event: events.Event) -> None:
        if isinstance(event, events.StepDone) and event.step == at:
            raise Stop

    bus = events.EventBus(stop)
    with pytest.raises(StageError):
        execute(run, graph, bus, artifacts=Artifacts(folder, run, graph, bus))
    recorder = Recorder()
    bus = events.EventBus(recorder)
    artifacts = Artifacts(folder, run, graph, bus, Resume(folder, graph))
    result = execute(run, graph, bus, artifacts=artifacts, keep=("frames",))
    notes = [event.text for event in recorder.of(events.Note)]
    return result.requests[0].values["frames"].data, [event.step for event in recorder.of(events.StepDone)], notes


def frames_of(spec: Any, wanted: Any) -> torch.Tensor:
    result = execute(run_spec(spec, wanted), build_graph(spec), events.EventBus(), keep=("frames",))
    found: torch.Tensor = result.requests[0].values["frames"].data
    return found


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=() if name in DEFAULT else (pytest.mark.slow,)) for name in (*DEFAULT, *MORE)]
)
def test_a_pipeline_called_as_a_whole_goes_on_after_its_last_step(
    name: str, tiny_folder: Callable[[str], Path], tmp_path: Path
) -> None:
    spec = whole_builders.whole(tiny_folder(name), whole_builders.tiny_args(name))
    wanted = whole_builders.tiny_request(name, Path)
    found, steps, _ = stopped_and_resumed(spec, wanted, tmp_path, 1)
    assert torch.equal(found, frames_of(spec, wanted))
    assert steps[0] == 2


@pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=() if name in SCHEDULERS[:1] else (pytest.mark.slow,)) for name in SCHEDULERS],
)
def test_every_kind_of_scheduler_is_brought_back_with_its_history(
    name: str, tiny_folder: Callable[[str], Path], tmp_path: Path
) -> None:
    spec = whole_builders.whole(tiny_folder("sd15"), scheduler={"class": name})
    wanted = whole_builders.tiny_request("sd15", Path, num_inference_steps=5)
    found, steps, _ = stopped_and_resumed(spec, wanted, tmp_path, 3)
    assert torch.equal(found, frames_of(spec, wanted))
    assert steps[0] == 4


def test_a_scheduler_whose_state_is_no_data_is_refused_by_name(
    tiny_folder: Callable[[str], Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from diffusers import EulerDiscreteScheduler

    plain = EulerDiscreteScheduler.step

    def step(self: Any, *args: Any, **kwargs: Any) -> Any:
        self.sampler = object()
        return plain(self, *args, **kwargs)

    monkeypatch.setattr(EulerDiscreteScheduler, "step", step)
    spec = whole_builders.whole(tiny_folder("sd15"), scheduler={"class": "EulerDiscreteScheduler"})
    run = run_spec(spec, whole_builders.tiny_request("sd15", Path), checkpoint=CheckpointSpec(every_steps=1))
    recorder, graph = Recorder(), build_graph(spec)
    bus = events.EventBus(recorder)
    execute(run, graph, bus, artifacts=Artifacts(tmp_path, run, graph, bus))
    (said,) = [event.text for event in recorder.of(events.Note) if "every_steps" in event.text]
    assert said.endswith("no more steps of stage 'generate' are kept: attributes.sampler is a object")
    assert not list(tmp_path.rglob("*.step*"))


def test_a_run_without_every_steps_keeps_the_newest_step_when_it_breaks_off(one_thread: None, tmp_path: Path) -> None:
    spec = spec_builders.pipeline("digits", lambda name: None)
    wanted = spec_builders.request(prompt="a two", max_sequence_length=16, num_inference_steps=4)
    graph, run = build_graph(spec), run_spec(spec, wanted)

    def stop(event: events.Event) -> None:
        if isinstance(event, events.StepDone) and event.step == 3:
            raise KeyboardInterrupt

    bus = events.EventBus(stop)
    with pytest.raises(Exception, match="interrupted"):
        execute(run, graph, bus, artifacts=Artifacts(tmp_path, run, graph, bus))
    names = sorted(path.name for path in (tmp_path / "artifacts").iterdir())
    assert names == ["denoise.step3.safetensors", "encode_prompt.safetensors"]


def test_a_copied_scheduler_has_its_own_plain_method() -> None:
    class Counter:
        def __init__(self) -> None:
            self.value = 0

        def step(self, more: int = 1) -> int:
            self.value += more
            return self.value

    counter, calls = Counter(), []

    def around(step: Any, args: Any, kwargs: Any) -> Any:
        calls.append(args)
        return step(*args, **kwargs)

    with around_method(counter, "step", around):
        copied = deepcopy(counter)
        assert list(signature(counter.step).parameters) == ["more"]
        assert (counter.step(2), copied.step(), copied.step()) == (2, 1, 2)
    assert calls == [(2,)]
    assert "step" not in vars(counter)


def test_answers_have_the_shapes_of_the_calls_they_stand_for() -> None:
    shapes = CallShapes({})
    output = {"sample": torch.ones(2, 3, dtype=torch.bfloat16), "rest": (None, [torch.ones(1)])}
    shapes.add("transformer", output)
    shapes.add("transformer", (torch.ones(4),))
    assert "transformer" not in shapes
    shapes.turn()
    first, second, third = (shapes.zeros("transformer", CPU) for _ in range(3))
    assert isinstance(first, Record)
    assert first.sample.dtype == torch.bfloat16
    assert first[0] is first["sample"]
    assert first.rest[1][0].shape == (1,)
    assert second[0].shape == third[0].shape == (4,)
    assert not second[0].any()


def test_a_fresh_copy_shares_nothing_but_what_was_one_stays_one() -> None:
    tensor = torch.ones(2)
    copied = fresh({"one": tensor, "list": [tensor, 3]})
    assert copied.one is copied["list"][0]
    assert copied.one is not tensor
    assert copied["list"][1] == 3
