"""Families of videos, and Sana, from their packaged configs: the stages give the bytes of the plain call."""

import functools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import spec_builders
import torch

from framework.compose import compose
from framework.errors import ConfigError
from framework.runtime.events import StepDone, UseStarted
from framework.runtime.run import check_requests
from framework.spec import PipelineSpec, RequestSpec

Named = Callable[[str], Any]
PIPELINES = {
    "ltx": "ltx",
    "ltx_i2v": "ltx",
    "ltx_timed": "ltx_timed",
    "sana": "sana",
    "hunyuan_video15": "hunyuan_video15",
}
DECODE = {"decode_timestep": 0.05, "decode_noise_scale": 0.025}


def video_words(name: str, folder: Path) -> list[str]:
    config = "ltx" if name == "ltx_timed" else name
    words = [f"pipeline={config}", f"pipeline.model.source={folder}", "pipeline.model.dtype=float32"]
    if name == "ltx_timed":
        words += [f"+pipeline.args.{key}={value}" for key, value in DECODE.items()]
    if name == "sana":
        words += ["pipeline.model.variant=null", "pipeline.args.use_resolution_binning=false"]
    return words


def video_pipeline(name: str, tiny_folder: Callable[[str], Path]) -> PipelineSpec:
    return compose(video_words(name, tiny_folder(PIPELINES[name]))).pipeline


def video_request(name: str, picture: str, **changes: Any) -> RequestSpec:
    fields: dict[str, Any] = {"prompt": "a cat", "negative_prompt": "bad", "seeds": (7,), "height": 32, "width": 32}
    fields |= {"num_inference_steps": 2, "guidance_scale": 3.0, "max_sequence_length": 32}
    if name != "sana":
        fields |= {"num_frames": 9, "fps": 24}
    if name == "ltx_i2v":
        fields["image"] = picture
    if name == "hunyuan_video15":
        fields |= {"prompt": 'a sign that says "cat"', "max_sequence_length": None}
    return RequestSpec(**{**fields, **changes})


@pytest.fixture(scope="module")
def picture(tmp_path_factory: pytest.TempPathFactory) -> str:
    import tiny_pipelines

    file = tmp_path_factory.mktemp("pictures") / "start.png"
    tiny_pipelines.start_picture().save(file)
    return str(file)


@pytest.fixture(scope="module")
def loaded(tiny_folder: Callable[[str], Path]) -> Named:
    return functools.cache(lambda name: spec_builders.load(video_pipeline(name, tiny_folder)))


@pytest.fixture(scope="module")
def theirs(plain_pipeline: Named) -> Named:
    from diffusers import LTXImageToVideoPipeline

    def get(name: str) -> Any:
        base = plain_pipeline(PIPELINES[name])
        if name != "ltx_i2v":
            return base
        pipeline = LTXImageToVideoPipeline(**base.components)
        pipeline.set_progress_bar_config(disable=True)
        return pipeline

    return get


def plain_call(name: str, pipeline: Any, wanted: RequestSpec, output_type: str) -> Any:
    from framework.runtime.pictures import read_picture

    names = ("prompt", "negative_prompt", "height", "width", "num_frames", "num_inference_steps", "guidance_scale")
    arguments = {key: getattr(wanted, key) for key in names if getattr(wanted, key) is not None}
    generators = [torch.Generator().manual_seed(seed) for seed in wanted.seeds or ()]
    if name == "hunyuan_video15":
        del arguments["guidance_scale"]
        pipeline.guider = pipeline.guider.new(guidance_scale=wanted.guidance_scale)
        extra: dict[str, Any] = {"num_videos_per_prompt": len(generators)}
    elif name == "sana":
        extra = {"use_resolution_binning": False, "num_images_per_prompt": len(generators)}
    else:
        extra = {"frame_rate": wanted.fps, "num_videos_per_prompt": len(generators)}
    if name == "ltx_timed":
        extra |= DECODE
    if wanted.image is not None:
        extra["image"] = [read_picture(wanted.image)] * len(generators)
    if wanted.max_sequence_length is not None:
        extra["max_sequence_length"] = wanted.max_sequence_length
    output = pipeline(
        **arguments,
        **extra,
        generator=generators,
        output_type=output_type,
    )
    return output.images if name == "sana" else output.frames


def assert_equal(name: str, values: Any, pipeline: Any, wanted: RequestSpec) -> None:
    assert torch.equal(values["latents"].data, plain_call(name, pipeline, wanted, "latent"))
    pixels = torch.from_numpy(plain_call(name, pipeline, wanted, "np"))
    assert torch.equal(values["frames"].data, pixels.unsqueeze(1) if name == "sana" else pixels)


RUNS = [(name, seeds) for name in PIPELINES for seeds in ((7,), (3, 4))]
RUNS.remove(("ltx_timed", (3, 4)))  # the plain call tells the VAE one time for two videos and fails
RUNS.remove(("hunyuan_video15", (3, 4)))  # the plain call fails with two


@pytest.mark.parametrize(("name", "seeds"), RUNS)
def test_a_video_family_in_stages_equals_the_plain_call(
    name: str, seeds: tuple[int, ...], loaded: Named, theirs: Named, picture: str
) -> None:
    wanted = video_request(name, picture, seeds=seeds, num_outputs=len(seeds))
    result, _ = spec_builders.run(loaded(name), wanted)
    assert_equal(name, result.requests[0].values, theirs(name), wanted)


@pytest.mark.slow
def test_two_videos_of_hunyuan_have_the_latents_of_the_plain_call_and_are_decoded_one_by_one(
    loaded: Named, theirs: Named
) -> None:
    wanted = video_request("hunyuan_video15", "", seeds=(3, 4), num_outputs=2)
    result, _ = spec_builders.run(loaded("hunyuan_video15"), wanted)
    values, pipeline = result.requests[0].values, theirs("hunyuan_video15")
    pipeline.guider = pipeline.guider.new(guidance_scale=wanted.guidance_scale)
    both = pipeline(  # two texts: for two videos of one text the plain call's loop fails
        prompt=[wanted.prompt] * 2,
        negative_prompt=[wanted.negative_prompt] * 2,
        height=32,
        width=32,
        num_frames=9,
        num_inference_steps=2,
        generator=[torch.Generator().manual_seed(seed) for seed in (3, 4)],
        output_type="latent",
    ).frames
    assert torch.equal(values["latents"].data, both)
    with torch.inference_mode():
        scaled = values["latents"].data[1:] / pipeline.vae.config.scaling_factor
        decoded = pipeline.vae.decode(scaled, return_dict=False)[0]
    pixels = pipeline.video_processor.postprocess_video(decoded, output_type="np")
    assert torch.equal(values["frames"].data[1], torch.from_numpy(pixels[0]))


def test_the_noise_that_a_timed_decoder_draws_follows_that_of_the_loop(loaded: Named, picture: str) -> None:
    two = video_request("ltx_timed", picture, seeds=(3, 7), num_outputs=2)
    one = video_request("ltx_timed", picture)
    both, _ = spec_builders.run(loaded("ltx_timed"), two)
    alone, _ = spec_builders.run(loaded("ltx_timed"), one)
    difference = both.requests[0].values["frames"].data[1] - alone.requests[0].values["frames"].data[0]
    assert difference.abs().max() < 1e-3  # batches of two round otherwise than one


@pytest.mark.parametrize("scale", [pytest.param(scale, marks=pytest.mark.slow) for scale in (None, 1.0, 4.0)])
def test_the_guider_has_the_guidance_of_the_request_and_keeps_its_own_after_it(
    scale: float | None, loaded: Named, theirs: Named
) -> None:
    wanted = video_request("hunyuan_video15", "", guidance_scale=scale)
    result, recorder = spec_builders.run(loaded("hunyuan_video15"), wanted)
    pipeline = theirs("hunyuan_video15")
    pipeline.guider = pipeline.guider.new(guidance_scale=6.0 if scale is None else scale)
    plain = video_request("hunyuan_video15", "", guidance_scale=6.0 if scale is None else scale)
    assert_equal("hunyuan_video15", result.requests[0].values, pipeline, plain)
    assert [(done.step, done.num_steps) for done in recorder.of(StepDone)] == [(1, 2), (2, 2)]
    assert loaded("hunyuan_video15")[2].components["guider"].config.guidance_scale == 6.0


def test_without_quotation_marks_the_byte_encoder_is_left_alone(loaded: Named) -> None:
    short = {"num_inference_steps": 1, "guidance_scale": 1.0}
    wanted = [video_request("hunyuan_video15", "", prompt=text, **short) for text in ("a cat", 'a "cat"')]
    _, recorder = spec_builders.run(loaded("hunyuan_video15"), *wanted)
    assert [use.request for use in recorder.of(UseStarted) if use.component == "text_encoder_2"] == [1]


def test_a_negative_text_of_sana_never_comes_from_the_cache_of_positive_ones(loaded: Named, theirs: Named) -> None:
    wanted = video_request("sana", "", negative_prompt="a cat")
    result, _ = spec_builders.run(loaded("sana"), wanted)
    assert_equal("sana", result.requests[0].values, theirs("sana"), wanted)


@pytest.mark.parametrize(
    ("name", "changes", "expected"),
    [
        ("ltx", {"height": 48}, "request.height: 48 is no multiple of 32"),
        ("ltx", {"num_frames": 10}, "request.num_frames: 10 is not 1 more than a multiple of 4; try 9"),
        ("ltx_i2v", {"image": None}, "request.image: this pipeline starts from a picture"),
        ("sana", {"width": 40}, "request.width: 40 is no multiple of 32"),
    ],
)
def test_what_a_video_family_would_round_is_refused_before_loading(
    name: str, changes: dict[str, Any], expected: str, tiny_folder: Callable[[str], Path], picture: str
) -> None:
    with pytest.raises(ConfigError) as caught:
        check_requests(video_pipeline(name, tiny_folder), [video_request(name, picture, **changes)])
    assert expected in str(caught.value)


@pytest.mark.parametrize(
    ("word", "expected"),
    [
        ("+pipeline.args.decode_timestop=0.1", "family ltx takes decode_timestep, decode_noise_scale"),
        ("+pipeline.args.height=8", "pipeline.args.height"),
    ],
)
def test_an_argument_that_the_family_does_not_take_is_refused_by_name(word: str, expected: str) -> None:
    with pytest.raises(ConfigError) as caught:
        compose(["pipeline=ltx", word])
    assert expected in str(caught.value)
