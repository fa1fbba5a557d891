"""Sizes that a checkpoint cannot make are refused before a weight is read."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import spec_builders
from spec_builders import Recorder, request, run_spec

from framework.errors import ConfigError, LoadError
from framework.graph import build_graph
from framework.runtime.events import ComponentLoading, EventBus, RunFinished
from framework.runtime.run import check_requests, execute
from framework.spec import SchedulerSpec
from stages.families.wan import WanFamily


@pytest.mark.parametrize(
    ("name", "change", "line"),
    [
        ("digits", {"height": 40}, "request.height: 40 is no multiple of 16; try 32"),
        ("digits", {"width": 0}, "request.width: 0 is no multiple of 16; try 16"),
        ("wan_ti2v", {"height": 48}, "request.height: 48 is no multiple of 32; try 64"),
        ("digits", {"num_frames": 8}, "request.num_frames: 8 is not 1 more than a multiple of 4; try 9"),
        (
            "digits",
            {"max_sequence_length": 100_000},
            "request.max_sequence_length: 100000 tokens are more than this pipeline takes; at most 512",
        ),
        (
            "wan21",
            {"guidance_scale_2": 3.0},
            "request.guidance_scale_2: this checkpoint has no second expert, so nothing reads it",
        ),
    ],
)
def test_a_size_is_refused_with_the_nearest_one(
    name: str, change: dict[str, Any], line: str, tiny_folder: Callable[[str], Path]
) -> None:
    wanted = request(**{"height": 64, "width": 64, **change})
    with pytest.raises(ConfigError) as caught:
        check_requests(spec_builders.pipeline(name, tiny_folder), [wanted])
    assert str(caught.value) == line


def test_a_folder_of_another_family_is_refused_as_that(tiny_folder: Callable[[str], Path]) -> None:
    spec = replace(spec_builders.pipeline("wan21", tiny_folder), scheduler=SchedulerSpec(flow_shift=3.0))
    spec = replace(spec, model=replace(spec.model, source=str(tiny_folder("sdxl"))))
    with pytest.raises(LoadError, match="a StableDiffusionXLPipeline, which family 'wan' does not run"):
        check_requests(spec, [request()])


def test_a_boundary_given_as_text_is_refused_before_loading() -> None:
    (problem,) = WanFamily().check_request(request(), {"boundary_ratio": "0.9"}, {})
    assert (
        str(problem) == "pipeline.model.source: its model_index.json has the boundary_ratio '0.9', which is no number"
    )


@pytest.mark.parametrize(
    ("scheduler", "line"),
    [
        (SchedulerSpec(class_name="Foo"), r"pipeline\.scheduler\.class: diffusers has no scheduler 'Foo'"),
        (
            SchedulerSpec(options={"foo": 1}),
            r"pipeline\.scheduler\.options\.foo: UniPCMultistepScheduler has no option 'foo'",
        ),
        (
            SchedulerSpec(class_name="DDIMScheduler", flow_shift=3.0),
            r"pipeline\.scheduler\.flow_shift: DDIMScheduler has no flow shift",
        ),
    ],
)
def test_a_scheduler_that_cannot_be_built_is_refused_before_loading(
    scheduler: SchedulerSpec, line: str, tiny_folder: Callable[[str], Path]
) -> None:
    pipeline = replace(spec_builders.pipeline("digits", tiny_folder), scheduler=scheduler)
    with pytest.raises(ConfigError, match=line):
        check_requests(pipeline, [request()])
    check_requests(replace(pipeline, scheduler=SchedulerSpec(flow_shift=3.0)), [request()])


def test_nothing_is_loaded_for_a_request_that_is_wrong(tiny_folder: Callable[[str], Path]) -> None:
    spec = run_spec(spec_builders.pipeline("digits", tiny_folder), request(height=40))
    recorder = Recorder()
    with pytest.raises(ConfigError):
        execute(spec, build_graph(spec.pipeline), EventBus(recorder))
    assert recorder.of(ComponentLoading) == []
    (finished,) = recorder.of(RunFinished)
    assert finished.status == "refused"
    assert finished.error == "request.height: 40 is no multiple of 16; try 32"
