"""From a first picture: the stages give the bytes of the plain call, and the VAE is gone before the loop begins."""

import dataclasses
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import spec_builders
import torch
from spec_builders import StageSpec, request

from framework.errors import ConfigError, StageError
from framework.runtime.events import UseFinished, UseStarted
from framework.runtime.run import check_requests
from framework.spec import ComponentSpec, ComponentUse, PipelineSpec, RequestSpec

Named = Callable[[str], Any]


@pytest.fixture(scope="module")
def picture(tmp_path_factory: pytest.TempPathFactory) -> str:
    import tiny_pipelines

    file = tmp_path_factory.mktemp("pictures") / "start.png"
    tiny_pipelines.start_picture().save(file)
    return str(file)


def i2v_pipeline(name: str, tiny_folder: Callable[[str], Path]) -> PipelineSpec:
    """Wan 2.1 has an image encoder and one denoiser, Wan 2.2 none and two."""
    two = name == "wan22_i2v"
    stages = {
        "encode_prompt": StageSpec(name="encode_prompt", kind="text_encode"),
        "encode_image": StageSpec(name="encode_image", kind="image_encode"),
        "condition": StageSpec(name="condition", kind="condition"),
        **{name: stage for name, stage in spec_builders.standard_stages(two).items() if name != "encode_prompt"},
    }
    components = {
        "text_encoder": ComponentSpec(name="text_encoder", group="text_encoder"),
        "image_encoder": ComponentSpec(name="image_encoder", group="image_encoder"),
        "transformer": ComponentSpec(name="transformer", group="dit", layers=("blocks",)),
        "transformer_2": ComponentSpec(name="transformer_2", group="dit", layers=("blocks",)),
        "vae": ComponentSpec(name="vae", group="vae"),
    }
    unused = {"encode_image"} if two else set()
    absent = "image_encoder" if two else "transformer_2"
    return spec_builders.pipeline(
        name,
        tiny_folder,
        family="wan_i2v",
        stages={key: stage for key, stage in stages.items() if key not in unused},
        components={key: component for key, component in components.items() if key != absent},
    )


@pytest.fixture(scope="module")
def loaded(tiny_folder: Callable[[str], Path]) -> Named:
    known: dict[str, Any] = {}

    def load(name: str) -> Any:
        if name not in known:
            known[name] = spec_builders.load(i2v_pipeline(name, tiny_folder))
        return known[name]

    return load


def plain_call(pipeline: Any, wanted: RequestSpec, output_type: str) -> Any:
    from framework.runtime.pictures import read_picture

    names = ("prompt", "negative_prompt", "height", "width", "num_frames", "num_inference_steps", "max_sequence_length")
    generators = [torch.Generator().manual_seed(seed) for seed in wanted.seeds or ()]
    return pipeline(
        image=read_picture(wanted.image or ""),
        **{name: getattr(wanted, name) for name in names},
        num_videos_per_prompt=len(generators),
        generator=generators,
        output_type=output_type,
    ).frames


@pytest.mark.parametrize("name", ["wan21_i2v", "wan22_i2v"])
def test_stages_from_a_picture_equal_the_plain_call(
    name: str, loaded: Named, plain_pipeline: Named, picture: str
) -> None:
    wanted = request(image=picture)
    result, _ = spec_builders.run(loaded(name), wanted)
    values = result.requests[0].values
    assert torch.equal(values["latents"].data, plain_call(plain_pipeline(name), wanted, "latent"))
    assert torch.equal(values["frames"].data, torch.from_numpy(plain_call(plain_pipeline(name), wanted, "np")))


def test_a_checkpoint_indexed_as_text_to_video_starts_from_a_picture_too(
    tiny_folder: Callable[[str], Path], picture: str
) -> None:
    from diffusers import WanImageToVideoPipeline

    spec = i2v_pipeline("wan_ti2v", tiny_folder)
    single = {"denoise": StageSpec(name="denoise", kind="denoise")}
    stages = {name: stage for name, stage in spec.stages.items() if name != "encode_image"}
    components = {name: part for name, part in spec.components.items() if name in spec_builders.GROUPS}
    components.pop("transformer_2", None)
    loaded = spec_builders.load(dataclasses.replace(spec, stages={**stages, **single}, components=components))
    wanted = request(image=picture, height=64, width=64)
    result, _ = spec_builders.run(loaded, wanted)
    theirs = spec_builders.plain(tiny_folder("wan_ti2v"))
    as_i2v = WanImageToVideoPipeline(**theirs.components, expand_timesteps=True)
    as_i2v.set_progress_bar_config(disable=True)
    assert torch.equal(result.requests[0].values["latents"].data, plain_call(as_i2v, wanted, "latent"))
    assert torch.equal(result.requests[0].values["frames"].data, torch.from_numpy(plain_call(as_i2v, wanted, "np")))


def test_two_videos_from_one_picture_equal_one_plain_call(loaded: Named, plain_pipeline: Named, picture: str) -> None:
    wanted = request(image=picture, seeds=(3, 4), num_outputs=2)
    result, _ = spec_builders.run(loaded("wan22_i2v"), wanted)
    assert torch.equal(
        result.requests[0].values["latents"].data, plain_call(plain_pipeline("wan22_i2v"), wanted, "latent")
    )


def test_the_vae_is_let_go_before_the_first_step(loaded: Named, picture: str) -> None:
    _, recorder = spec_builders.run(loaded("wan22_i2v"), request(image=picture))
    order = [
        (type(event).__name__, event.component)
        for event in recorder.events
        if isinstance(event, UseStarted | UseFinished) and event.component in ("vae", "transformer")
    ]
    assert order.index(("UseFinished", "vae")) < order.index(("UseStarted", "transformer"))


def test_a_graph_without_the_condition_stage_says_so(tiny_folder: Callable[[str], Path], picture: str) -> None:
    spec = i2v_pipeline("wan22_i2v", tiny_folder)
    vae_in_loop = (*spec_builders.EXPERTS, ComponentUse(component="vae", start_at_stage_entry=False))
    stages = {name: stage for name, stage in spec.stages.items() if name != "condition"}
    stages["denoise"] = StageSpec(name="denoise", kind="denoise", component_uses=vae_in_loop)
    changed = dataclasses.replace(spec, stages=stages)
    with pytest.raises(StageError, match="put a stage of kind 'condition' before it"):
        spec_builders.run(spec_builders.load(changed), request(image=picture))


@pytest.mark.parametrize(
    ("changes", "expected"),
    [({}, "request.image: this pipeline starts from a picture"), ({"image": "no.png"}, "'no.png' is no picture")],
)
def test_a_missing_picture_is_refused_before_loading(
    changes: dict[str, Any], expected: str, tiny_folder: Callable[[str], Path]
) -> None:
    with pytest.raises(ConfigError, match=expected):
        check_requests(i2v_pipeline("wan22_i2v", tiny_folder), [request(**changes)])
