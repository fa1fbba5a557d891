"""Classes of diffusers without a family: which keys of a request each reads, and what is refused by name."""

from typing import Any

import diffusers
import pytest

from framework.families import SPECIAL, WHOLE
from framework.runtime.call_arguments import PARAMETERS, call_arguments, call_parameters, check_arguments, parameter_of
from framework.spec import RequestSpec

EVERY = {"prompt", "negative_prompt", "height", "width", "num_inference_steps", "guidance_scale", "num_outputs"}
READS = {
    "AnimateDiffPipeline": EVERY | {"num_frames"},
    "ChromaPipeline": EVERY | {"max_sequence_length"},
    "CogVideoXPipeline": EVERY | {"num_frames", "max_sequence_length"},
    "HunyuanVideoPipeline": EVERY | {"num_frames", "max_sequence_length"},
    "Lumina2Pipeline": EVERY | {"max_sequence_length"},
    "PixArtAlphaPipeline": EVERY | {"max_sequence_length"},
    "Cosmos2TextToImagePipeline": EVERY | {"max_sequence_length"},
    "GlmImagePipeline": EVERY - {"negative_prompt"} | {"max_sequence_length", "image"},
}
VALUES: dict[str, Any] = {
    "prompt": "a cat",
    "negative_prompt": "bad",
    "height": 32,
    "width": 32,
    "num_frames": 9,
    "num_inference_steps": 2,
    "guidance_scale": 3.0,
    "guidance_scale_2": 2.0,
    "max_sequence_length": 32,
    "num_outputs": 2,
    "fps": 8,
    "image": __file__,
    "video": __file__,
    "mask": __file__,
    "strength": 0.5,
}
ALWAYS = {"num_outputs", "fps"}  # several calls and the writer see to these


def test_this_diffusers_has_every_class_that_the_page_names() -> None:
    named = {*WHOLE, *(name for _, classes, _ in SPECIAL for name in classes)}
    assert all(hasattr(diffusers, name) for name in named)
    assert not any("Hunyuan3D" in name for name in dir(diffusers))
    assert set(WHOLE) <= set(READS)


@pytest.mark.parametrize("name", READS)
def test_a_key_of_the_request_is_read_or_refused_by_name(name: str) -> None:
    cls = getattr(diffusers, name)
    assert {key for key in PARAMETERS if parameter_of(key, call_parameters(cls))} == READS[name]
    assert set(VALUES) == set(PARAMETERS)
    refused = {problem.key for problem in check_arguments(cls, {}, [RequestSpec(**VALUES, seeds=(1, 2))])}
    names = {key if key.endswith("prompt") else f"request.{key}" for key in set(VALUES) - READS[name] - ALWAYS}
    assert refused == names


@pytest.mark.parametrize(
    ("name", "args", "expected"),
    [
        ("HunyuanVideoPipeline", {"true_cfg_scale": 6.0, "prompt_template": {"template": "{}", "crop_start": 0}}, []),
        ("AnimateDiffPipeline", {"decode_chunk_size": 4}, []),
        ("AnimateDiffPipeline", {"decode_chunk_sise": 4}, ["pipeline.args.decode_chunk_sise"]),
        ("CogVideoXPipeline", {"num_frames": 9}, ["pipeline.args.num_frames"]),
        ("Lumina2Pipeline", {"cfg_trunc_ratio": 0.25, "latents": [1]}, ["pipeline.args.latents"]),
        ("PixArtAlphaPipeline", {"callback_steps": 2}, ["pipeline.args.callback_steps"]),
    ],
)
def test_an_argument_of_the_call_is_taken_or_refused_by_name(
    name: str, args: dict[str, Any], expected: list[str]
) -> None:
    cls = getattr(diffusers, name)
    request = RequestSpec(prompt="a cat")
    assert [problem.key for problem in check_arguments(cls, args, [request])] == expected
    assert expected or call_arguments(cls, args, request) == {**args, "prompt": "a cat"}
