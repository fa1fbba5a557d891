"""Stable Diffusion 1.5 and XL, from text, pictures and masks: the stages give the bytes of the plain call."""

import dataclasses
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
import spec_builders
import torch

from framework.errors import ConfigError
from framework.runtime.events import Note
from framework.runtime.run import check_requests
from framework.spec import ComponentSpec, ComponentUse, PipelineSpec, RequestSpec, StageSpec

Named = Callable[[str], Any]
GROUPS = {"text_encoder": "text_encoder", "text_encoder_2": "text_encoder", "unet": "dit", "vae": "vae"}
PLAIN = {
    "sd15": "StableDiffusionPipeline",
    "sdxl": "StableDiffusionXLPipeline",
    "sdxl_img2img": "StableDiffusionXLImg2ImgPipeline",
    "sdxl_inpaint": "StableDiffusionXLInpaintPipeline",
}
SIZES = ("height", "width")


def use(*names: str) -> tuple[ComponentUse, ...]:
    return tuple(ComponentUse(component=name, start_at_stage_entry=False) for name in names)


def sd_pipeline(name: str, tiny_folder: Callable[[str], Path]) -> PipelineSpec:
    """One of `PLAIN`: all of XL run from the folder of the text-to-image pipeline."""
    encoders = ("text_encoder", "text_encoder_2") if name != "sd15" else ("text_encoder",)
    stages = [StageSpec(name="encode_prompt", kind="text_encode", component_uses=use(*encoders))]
    if "2img" in name or "inpaint" in name:
        stages.append(StageSpec(name="condition", kind="condition"))
    stages += [
        StageSpec(name="denoise", kind="denoise", component_uses=use("unet")),
        StageSpec(name="decode", kind="decode"),
        StageSpec(name="export", kind="export"),
    ]
    return spec_builders.pipeline(
        "sd15" if name == "sd15" else "sdxl",
        tiny_folder,
        family="stable_diffusion" if name == "sd15" else name,
        stages={stage.name: stage for stage in stages},
        components={
            part: ComponentSpec(name=part, group=group)
            for part, group in GROUPS.items()
            if name != "sd15" or part != "text_encoder_2"
        },
    )


def sd_request(name: str, pictures: Mapping[str, str], **changes: Any) -> RequestSpec:
    fields: dict[str, Any] = {"prompt": "a cat", "negative_prompt": "bad", "seeds": (7,), "num_inference_steps": 2}
    if name != "sdxl_img2img":
        fields |= {"height": 32, "width": 32}
    if name in ("sdxl_img2img", "sdxl_inpaint"):
        fields |= {"image": pictures["image"], "strength": 0.6}
    if name == "sdxl_inpaint":
        fields["mask"] = pictures["mask"]
    return RequestSpec(**{**fields, **changes})


@pytest.fixture(scope="module")
def pictures(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    import tiny_pipelines
    from PIL import Image

    folder = tmp_path_factory.mktemp("sd_pictures")
    tiny_pipelines.start_picture().save(folder / "image.png")
    mask = Image.new("L", (32, 32), 0)
    mask.paste(255, (8, 8, 24, 24))
    mask.save(folder / "mask.png")
    return {name: str(folder / f"{name}.png") for name in ("image", "mask")}


@pytest.fixture(scope="module")
def loaded(tiny_folder: Callable[[str], Path]) -> Named:
    known: dict[str, Any] = {}

    def load(name: str) -> Any:
        if name not in known:
            known[name] = spec_builders.load(sd_pipeline(name, tiny_folder))
        return known[name]

    return load


@pytest.fixture(scope="module")
def theirs(plain_pipeline: Named) -> Named:
    """diffusers' own pipeline for a name of `PLAIN`."""
    import diffusers

    def get(name: str) -> Any:
        base = plain_pipeline("sd15" if name == "sd15" else "sdxl")
        if name in ("sd15", "sdxl"):
            return base
        pipeline = getattr(diffusers, PLAIN[name])(**base.components)
        pipeline.set_progress_bar_config(disable=True)
        return pipeline

    return get


def plain_call(pipeline: Any, wanted: RequestSpec, output_type: str) -> Any:
    from framework.runtime.pictures import read_picture

    names = ("prompt", "negative_prompt", *SIZES, "num_inference_steps", "guidance_scale", "strength")
    arguments = {name: getattr(wanted, name) for name in names if getattr(wanted, name) is not None}
    if wanted.image is not None:
        arguments["image"] = read_picture(wanted.image)
    if wanted.mask is not None:
        arguments["mask_image"] = read_picture(wanted.mask)
    generators = [torch.Generator().manual_seed(seed) for seed in wanted.seeds or ()]
    counted = {"num_images_per_prompt": len(generators), "generator": generators}
    return pipeline(**arguments, **counted, output_type=output_type).images


def assert_equal(values: Any, pipeline: Any, wanted: RequestSpec) -> None:
    assert torch.equal(values["latents"].data, plain_call(pipeline, wanted, "latent"))
    pictures = torch.from_numpy(plain_call(pipeline, wanted, "np"))
    assert torch.equal(values["frames"].data.squeeze(1), pictures)


@pytest.mark.parametrize(
    ("name", "seeds"),
    [(name, (7,)) for name in PLAIN]
    + [pytest.param(name, (3, 4), marks=() if name == "sdxl_inpaint" else pytest.mark.slow) for name in PLAIN],
)
def test_stable_diffusion_in_stages_equals_the_plain_call(
    name: str, seeds: tuple[int, ...], loaded: Named, theirs: Named, pictures: dict[str, str]
) -> None:
    wanted = sd_request(name, pictures, seeds=seeds, num_outputs=len(seeds))
    result, _ = spec_builders.run(loaded(name), wanted)
    assert_equal(result.requests[0].values, theirs(name), wanted)


@pytest.mark.parametrize("changes", [{"negative_prompt": None}, {"guidance_scale": 1.0}, {"negative_prompt": ""}])
@pytest.mark.parametrize("name", ["sd15", "sdxl"])
def test_an_absent_an_empty_and_an_unread_negative_prompt_are_three_things(
    name: str, changes: dict[str, Any], loaded: Named, theirs: Named
) -> None:
    wanted = sd_request(name, {}, **changes)
    result, _ = spec_builders.run(loaded(name), wanted)
    assert_equal(result.requests[0].values, theirs(name), wanted)


def test_absent_and_empty_differ_where_the_checkpoint_has_zeros_for_absent(loaded: Named) -> None:
    wanted = [sd_request("sdxl", {}, negative_prompt=text) for text in (None, "")]
    result, _ = spec_builders.run(loaded("sdxl"), *wanted)
    absent, empty = (done.values["latents"].data for done in result.requests)
    assert not torch.equal(absent, empty)


def test_a_text_that_clip_cuts_is_said(loaded: Named) -> None:
    _, recorder = spec_builders.run(loaded("sd15"), sd_request("sd15", {}, prompt="a cat " * 90))
    assert any("is cut to the 77 that CLIP reads" in note.text for note in recorder.of(Note))


@pytest.mark.parametrize(
    ("name", "changes", "expected"),
    [
        ("sdxl", {"height": 30}, "request.height: 30 is no multiple of 8"),
        ("sd15", {"width": 4}, "request.width: 4 is no multiple of 8; try 8"),
        ("sdxl_img2img", {"image": None}, "request.image: this pipeline starts from a picture"),
        ("sdxl_inpaint", {"mask": None}, "request.mask: this pipeline starts from a picture"),
        ("sdxl_img2img", {"strength": 0.1}, "request.strength: 0.1 of 2 steps leaves none to run; at least 0.5"),
    ],
)
def test_what_stable_diffusion_cannot_do_is_refused_before_loading(
    name: str,
    changes: dict[str, Any],
    expected: str,
    tiny_folder: Callable[[str], Path],
    pictures: dict[str, str],
) -> None:
    with pytest.raises(ConfigError) as caught:
        check_requests(sd_pipeline(name, tiny_folder), [sd_request(name, pictures, **changes)])
    assert expected in str(caught.value)


@pytest.mark.parametrize("threshold", [-2.0, 2.0], ids=["all flagged", "none flagged"])
def test_the_safety_checker_is_a_stage_that_does_what_the_pipeline_does(
    threshold: float, tmp_path: Path, theirs: Named
) -> None:
    import tiny_pipelines
    from tiny.stable_diffusion import with_checker

    with_checker(tiny_pipelines.build("sd15"), threshold).save_pretrained(tmp_path)
    spec = sd_pipeline("sd15", lambda name: tmp_path)
    stages = {
        **spec.stages,
        "decode": StageSpec(name="decode", kind="decode", outputs={"frames": "unchecked"}),
        "check": StageSpec(name="check", kind="safety_check", inputs={"frames": "unchecked"}),
    }
    parts = {**spec.components, "safety_checker": ComponentSpec(name="safety_checker")}
    wanted = sd_request("sd15", {})
    changed = dataclasses.replace(spec, stages=stages, components=parts)
    result, recorder = spec_builders.run(spec_builders.load(changed), wanted)
    expected = torch.from_numpy(plain_call(spec_builders.plain(tmp_path), wanted, "np"))
    assert torch.equal(result.requests[0].values["frames"].data.squeeze(1), expected)
    flagged = threshold < 0
    assert bool((expected == 0).all()) == flagged
    assert any("blackened 1 of 1" in note.text for note in recorder.of(Note)) == flagged
