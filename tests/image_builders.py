"""Families of pictures: their packaged configs over tiny folders, and the plain call of each. torch in functions."""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from framework.compose import compose
from framework.spec import PipelineSpec, RequestSpec

SIZE = {"height": 32, "width": 32}


@dataclass(frozen=True)
class Case:
    """A tiny pipeline under a packaged config: what the request says, and what a script would tell the plain call.

    `words` are further overrides. `plain_class` is the class that a script puts over the folder's components, with
    `plain_options`; None is the folder's own. `counted` is what its call names the number of outputs.
    """

    tiny: str
    config: str
    request: Mapping[str, Any] = field(default_factory=dict)
    plain: Mapping[str, Any] = field(default_factory=dict)
    takes_picture: bool = False
    takes_mask: bool = False
    words: tuple[str, ...] = ()
    plain_class: str | None = None
    plain_options: Mapping[str, Any] = field(default_factory=dict)
    counted: str = "num_images_per_prompt"


CASES = {
    "flux": Case("flux", "flux1_dev", {"guidance_scale": 3.5}, {"guidance_scale": 3.5}),
    "flux_true_guidance": Case(
        "flux",
        "flux1_dev",
        {"guidance_scale": 2.0, "guidance_scale_2": 3.0, "negative_prompt": "bad"},
        {"guidance_scale": 2.0, "true_cfg_scale": 3.0, "negative_prompt": "bad"},
    ),
    "flux_schnell": Case("flux_schnell", "flux1_schnell"),
    "flux_kontext": Case(
        "flux_kontext",
        "flux1_kontext",
        {"guidance_scale": 2.5},
        {"guidance_scale": 2.5, "max_area": 32 * 32},
        takes_picture=True,
    ),
    "flux_kontext_text": Case("flux_kontext", "flux1_kontext", plain={"max_area": 32 * 32}),
    "flux2_klein": Case("flux2_klein_deep", "flux2_klein_4b", {"guidance_scale": 4.0}, {"guidance_scale": 4.0}),
    "flux2_klein_edit": Case(
        "flux2_klein_deep", "flux2_klein_4b", {"guidance_scale": 4.0}, {"guidance_scale": 4.0}, takes_picture=True
    ),
    "qwen_image": Case(
        "qwen_image",
        "qwen_image",
        {"guidance_scale": 3.0, "negative_prompt": " ", "max_sequence_length": 256},
        {"true_cfg_scale": 3.0, "negative_prompt": " "},
    ),
    "qwen_image_edit": Case(
        "qwen_image_edit",
        "qwen_image_edit",
        {"guidance_scale": 3.0, "negative_prompt": " ", "max_sequence_length": None},
        {"true_cfg_scale": 3.0, "negative_prompt": " "},
        takes_picture=True,
    ),
    "qwen_image_edit_plus": Case(
        "qwen_image_edit_plus",
        "qwen_image_edit",
        {"guidance_scale": 3.0, "negative_prompt": " ", "max_sequence_length": None, "height": None, "width": None},
        {"true_cfg_scale": 3.0, "negative_prompt": " ", "height": None, "width": None},
        takes_picture=True,
    ),
    "z_image": Case(
        "zimage",
        "z_image_turbo",
        {"guidance_scale": 3.0, "negative_prompt": "bad", "max_sequence_length": 128},
        {"guidance_scale": 3.0, "negative_prompt": "bad"},
    ),
    "z_image_turbo": Case("zimage", "z_image_turbo", {"guidance_scale": 0.0}, {"guidance_scale": 0.0}),
    "sd3": Case(
        "sd3",
        "sd35_large",
        {"guidance_scale": 3.5, "negative_prompt": "bad"},
        {"guidance_scale": 3.5, "negative_prompt": "bad"},
    ),
}


def words(case: Case, folder: Path) -> list[str]:
    """The overrides that run the packaged config of a case over a tiny folder."""
    common = [f"pipeline={case.config}", f"pipeline.model.source={folder}", "pipeline.model.dtype=float32"]
    return [*common, *case.words]


def family_pipeline(case: Case, tiny_folder: Callable[[str], Path]) -> PipelineSpec:
    return compose(words(case, tiny_folder(case.tiny))).pipeline


def family_request(case: Case, picture: str, **changes: Any) -> RequestSpec:
    """Two steps to a picture of 32 x 32 pixels; `picture` is the file for those who take one."""
    fields: dict[str, Any] = {"prompt": "a cat", "seeds": (7,), **SIZE, "num_inference_steps": 2}
    fields |= {"image": picture} if case.takes_picture else {}
    fields |= {"mask": picture} if case.takes_mask else {}
    fields |= {"max_sequence_length": 64, **case.request}
    return RequestSpec(**{**fields, **changes})


def script(case: Case, plain_pipeline: Callable[[str], Any]) -> Any:
    """The pipeline that a script would make for a case; `plain_pipeline` gives that of a tiny folder."""
    import diffusers

    base = plain_pipeline(case.tiny)
    if case.plain_class is None:
        return base
    pipeline = getattr(diffusers, case.plain_class)(**base.components, **case.plain_options)
    pipeline.set_progress_bar_config(disable=True)
    return pipeline


def plain_call(case: Case, loaded: Any, wanted: RequestSpec, output_type: str) -> Any:
    """Call `loaded` as a script would for `wanted`; returns latents, or pictures or videos as an array."""
    import torch

    from framework.runtime.pictures import read_picture

    names = ("height", "width", "num_frames", "num_inference_steps", "max_sequence_length")
    said = {name: getattr(wanted, name) for name in names if getattr(wanted, name) is not None}
    files = {"image": wanted.image, "mask_image": wanted.mask}
    pictures = {name: read_picture(file) for name, file in files.items() if file}
    generators = [torch.Generator().manual_seed(seed) for seed in wanted.seeds or ()]
    output = loaded(
        prompt=wanted.prompt,
        **{**said, **pictures, **case.plain, case.counted: len(generators)},
        generator=generators[0] if len(generators) == 1 else generators,
        output_type=output_type,
    )
    return output.frames if hasattr(output, "frames") else output.images


def said_words(wanted: RequestSpec) -> list[str]:
    """What a request says, as overrides of the command line: texts, one seed, and every number and file."""
    left_out = ("prompt", "negative_prompt", "seeds", "num_outputs", "generator_device", "lora_scales")
    values = {name: getattr(wanted, name) for name in wanted.__dataclass_fields__ if name not in left_out}
    texts = {"prompt": wanted.prompt, "negative_prompt": wanted.negative_prompt}
    return [
        *(f"{name}={text}" for name, text in texts.items() if text is not None),
        *(f"request.{name}={value}" for name, value in values.items() if value is not None),
        *(f"seed={seed}" for seed in wanted.seeds or ()),
    ]


def frames_hashes(root: Path) -> set[str]:
    """The hashes of frames in the one record below `root`."""
    (file,) = root.rglob("record.json")
    (request,) = json.loads(file.read_text(encoding="utf-8"))["requests"]
    return {output["frames_sha256"] for output in request["outputs"] if output["frames_sha256"]}


def small_areas(patch: Any) -> None:
    """Let the pipelines that scale a picture to a million pixels take fewer, on both sides."""
    from diffusers.pipelines.flux import pipeline_flux_kontext
    from diffusers.pipelines.qwenimage import pipeline_qwenimage_edit, pipeline_qwenimage_edit_plus

    patch.setattr(pipeline_flux_kontext, "PREFERRED_KONTEXT_RESOLUTIONS", [(32, 32), (48, 32)])
    for module in (pipeline_qwenimage_edit, pipeline_qwenimage_edit_plus):
        full = module.calculate_dimensions
        if full.__module__ == module.__name__:  # else it is patched already, for a whole session
            patch.setattr(module, "calculate_dimensions", lambda area, ratio, full=full: full(area / 64, ratio))
