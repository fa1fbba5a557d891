"""A pipeline called as a whole: the same bytes as the plain call, uses that begin at the call, arguments refused."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import spec_builders
import tiny_pipelines
import torch
from spec_builders import Recorder
from whole_builders import plain_frames, tiny_args, tiny_request, whole

from framework.errors import StageError
from framework.graph import build_graph
from framework.runtime.events import StepDone, UseFinished, UseStarted
from framework.runtime.finite import FiniteWatch, finite_flag, tensors_of
from framework.runtime.pictures import joined
from framework.spec import ComponentSpec, ComponentUse, RequestSpec, StageSpec
from framework.values import Frames
from stages import diffusers_pipeline
from stages.diffusers_pipeline import DiffusersPipeline

Named = Callable[[str], Any]
DEFAULT = ("cogvideox", "hunyuan_video", "pixart_alpha")
REST = sorted(set(tiny_pipelines.BUILDERS) - set(DEFAULT))
FAMILIES = [*DEFAULT, *(pytest.param(name, marks=pytest.mark.slow) for name in REST)]


@pytest.fixture(scope="module")
def picture(tmp_path_factory: pytest.TempPathFactory) -> Callable[[], Path]:
    """Return the file of the picture that image-to-video starts from."""
    file = tmp_path_factory.mktemp("picture") / "start.png"
    tiny_pipelines.start_picture().save(file)
    return lambda: file


@pytest.fixture(scope="module")
def whole_stores(tiny_folder: Named) -> Named:
    """Return (pipeline spec, graph, store) of a tiny pipeline called as a whole, loaded once."""
    loaded: dict[str, Any] = {}

    def load(name: str) -> Any:
        if name not in loaded:
            loaded[name] = spec_builders.load(whole(tiny_folder(name), tiny_args(name)))
        return loaded[name]

    return load


@pytest.fixture
def asked(picture: Callable[[], Path]) -> Callable[..., RequestSpec]:
    return lambda name, **changes: tiny_request(name, picture, **changes)


def frames(result: Any) -> list[torch.Tensor]:
    return [done.values["frames"].data for done in result.requests]


@pytest.mark.parametrize("name", FAMILIES)
def test_every_request_equals_a_plain_call(
    name: str, whole_stores: Named, plain_pipeline: Named, asked: Callable[..., RequestSpec]
) -> None:
    wanted = [asked(name), asked(name, prompt="a dog", seeds=(8,)), asked(name)]
    result, _ = spec_builders.run(whole_stores(name), *wanted)
    first, second, again = frames(result)
    assert torch.equal(first, plain_frames(plain_pipeline(name), name, wanted[0]))
    assert torch.equal(second, plain_frames(plain_pipeline(name), name, wanted[1]))
    assert torch.equal(first, again)
    assert not torch.equal(first, second)


def test_two_outputs_equal_one_plain_call_with_two_generators(
    whole_stores: Named, plain_pipeline: Named, asked: Callable[..., RequestSpec]
) -> None:
    wanted = asked("sdxl", seeds=(3, 4), num_outputs=2)
    result, _ = spec_builders.run(whole_stores("sdxl"), wanted)
    assert torch.equal(frames(result)[0], plain_frames(plain_pipeline("sdxl"), "sdxl", wanted))


def uses(recorder: Recorder) -> list[tuple[str, str]]:
    """What began and what ended, in order."""
    kept = [event for event in recorder.events if isinstance(event, UseStarted | UseFinished)]
    return [("begin" if isinstance(event, UseStarted) else "end", event.component) for event in kept]


def test_each_component_is_in_use_from_its_first_call_until_another_phase_begins(
    whole_stores: Named, asked: Callable[..., RequestSpec]
) -> None:
    _, recorder = spec_builders.run(whole_stores("sdxl"), asked("sdxl"))
    assert uses(recorder) == [
        ("begin", "text_encoder"),
        ("begin", "text_encoder_2"),
        ("end", "text_encoder"),
        ("end", "text_encoder_2"),
        ("begin", "unet"),
        ("end", "unet"),
        ("begin", "vae"),
        ("end", "vae"),
    ]


def test_encoding_and_decoding_begin_a_use_of_the_vae_each(
    whole_stores: Named, asked: Callable[..., RequestSpec]
) -> None:
    _, recorder = spec_builders.run(whole_stores("wan22_i2v"), asked("wan22_i2v"))
    begun = [component for what, component in uses(recorder) if what == "begin"]
    assert begun == ["text_encoder", "vae", "transformer", "transformer_2", "vae"]


@pytest.mark.parametrize("name", ["sdxl", "pixart_alpha"], ids=["by the callback", "by the scheduler"])
def test_steps_are_reported(name: str, whole_stores: Named, asked: Callable[..., RequestSpec]) -> None:
    """PixArt's call has the older callback, which cannot end it."""
    _, recorder = spec_builders.run(whole_stores(name), asked(name, num_inference_steps=3))
    assert [(event.step, event.num_steps) for event in recorder.of(StepDone)] == [(1, 3), (2, 3), (3, 3)]


@pytest.mark.parametrize("left_out", ["text_encoder_2", "vae"])
def test_a_component_that_the_stage_does_not_declare_is_refused(
    left_out: str, tiny_folder: Named, asked: Callable[..., RequestSpec]
) -> None:
    spec = whole(tiny_folder("sdxl"))
    stated = tuple(
        ComponentUse(component=name, start_at_stage_entry=False) for name in spec.components if name != left_out
    )
    stages = {"generate": StageSpec(name="generate", kind="diffusers_pipeline", component_uses=stated)}
    changed = replace(spec, stages=stages)
    line = f"stage 'generate' calls component '{left_out}' outside a use it declared"
    with pytest.raises(StageError, match=f"^{line}$"):
        spec_builders.run(spec_builders.load(changed), asked("sdxl"))


def test_the_stages_uses_are_the_pipelines_components_in_the_order_of_their_calls(tiny_folder: Named) -> None:
    graph = build_graph(whole(tiny_folder("wan21_i2v")))
    stated = [(use.component, use.phase, use.start_at_stage_entry) for _, use in graph.timeline()]
    assert stated == [
        ("text_encoder", "text_encoder", False),
        ("image_encoder", "image_encoder", False),
        ("transformer", "transformer", False),
        ("vae", "vae", False),
    ]


def test_denoisers_that_run_in_turn_share_a_phase() -> None:
    names = {"controlnet": "dit", "unet": "dit", "vae": "vae", "safety_checker": None}
    spec = spec_builders.pipeline(
        "digits", lambda name: Path(name), components={n: ComponentSpec(name=n, group=g) for n, g in names.items()}
    )
    phases = {use.component: use.phase for use in DiffusersPipeline.uses_of(spec)}
    assert phases == {"controlnet": "dit", "unet": "dit", "vae": "vae", "safety_checker": None}


@pytest.mark.parametrize("at_once", [True, False])
def test_numbers_that_are_none_are_named_with_who_computed_them(
    at_once: bool, whole_stores: Named, asked: Callable[..., RequestSpec], monkeypatch: pytest.MonkeyPatch
) -> None:
    def look_later(watch: FiniteWatch, where: str, value: Any) -> None:
        watch._flags += [(where, finite_flag(tensor)) for tensor in tensors_of(value)]

    if not at_once:  # as on an accelerator: read when the stage ends, and the VAE has run since
        monkeypatch.setattr(FiniteWatch, "add", look_later)
    loaded = whole_stores("cogvideox")
    module = loaded[2].module("transformer")
    handle = module.register_forward_hook(lambda _module, _inputs, output: (output[0] * float("nan"),))
    try:
        with pytest.raises(StageError, match=r"not finite .*first at step 1 of 2 \(component 'transformer'\)"):
            spec_builders.run(loaded, asked("cogvideox"))
    finally:
        handle.remove()


def test_a_pipeline_that_counts_no_outputs_is_called_for_each_seed() -> None:
    class NoCount:
        def __call__(self, prompt: str, generator: Any = None) -> None: ...

    class Context:
        def generators(self) -> list[torch.Generator]:
            return [torch.Generator().manual_seed(seed) for seed in (3, 4)]

    calls = diffusers_pipeline._calls(Context(), NoCount())
    assert [call["generator"].initial_seed() for call in calls] == [3, 4]
    parts = [Frames(torch.full((1, 1, 2, 2, 3), float(number)), 8) for number in range(2)]
    assert joined(parts).data[:, 0, 0, 0, 0].tolist() == [0.0, 1.0]
