"""What a pipeline's call could not honour is refused by name, before anything is loaded."""

from pathlib import Path
from typing import Any

import pytest
import spec_builders
import torch
import whole_builders
from PIL import Image
from PIL.Image import Image as Picture

from framework.errors import ConfigError, Origin
from framework.runtime.call_arguments import call_arguments, check_arguments
from framework.runtime.run import check_requests
from framework.spec import RequestSpec


class Call:
    """A call with one parameter of every sort; it takes no strength and no video."""

    def __call__(
        self,
        image: Picture | torch.Tensor,
        prompt: str | None = None,
        height: int = 8,
        num_images_per_prompt: int = 1,
        true_cfg_scale: float = 1.0,
        control_image: Picture | torch.Tensor | None = None,
        latents: torch.Tensor | None = None,
        generator: Any = None,
        output_type: str = "pil",
        **kwargs: Any,
    ) -> None: ...


class Unconditional:
    def __call__(self, batch_size: int = 1, num_inference_steps: int = 50) -> None: ...


@pytest.fixture
def picture(tmp_path: Path) -> str:
    Image.new("RGB", (8, 8), "red").save(tmp_path / "red.png")
    return str(tmp_path / "red.png")


def lines(cls: type, args: dict[str, Any], **changes: Any) -> list[str]:
    return [str(problem) for problem in check_arguments(cls, args, [RequestSpec(**{"prompt": "x", **changes})])]


@pytest.mark.parametrize(
    ("args", "line"),
    [
        ({"true_cfg": 2.0}, "true_cfg: Call has no argument 'true_cfg'; did you mean 'true_cfg_scale'?"),
        ({"zzz": 1}, "zzz: Call has no argument 'zzz'; choose from control_image, true_cfg_scale"),
        ({"height": 16}, "height: this belongs to the request; use request.height"),
        ({"prompt": "a"}, "prompt: this belongs to the request; use prompt"),
        ({"num_images_per_prompt": 2}, "num_images_per_prompt: this belongs to the request; use request.num_outputs"),
        ({"output_type": "np"}, "output_type: the stage sets this itself; remove it"),
        ({"callback": 1}, "callback: the stage sets this itself; remove it"),
        ({"latents": [1.0]}, "latents: this takes tensors, which a config cannot hold; remove it"),
        ({"control_image": "/no/such.png"}, "control_image: there is no file '/no/such.png'"),
    ],
)
def test_an_argument_that_the_call_cannot_take_is_refused(args: dict[str, Any], line: str, picture: str) -> None:
    assert lines(Call, args, image=picture) == [f"pipeline.args.{line}"]


def test_arguments_that_the_call_has_pass(picture: str) -> None:
    assert lines(Call, {"true_cfg_scale": 2.0, "control_image": picture, "latents": None}, image=picture) == []


@pytest.mark.parametrize(
    ("changes", "line"),
    [
        ({"strength": 0.5}, "request.strength: Call takes no 'strength'; remove it"),
        ({"video": "/no/such.mp4"}, "request.video: Call takes no 'video'; remove it"),
        ({"negative_prompt": "bad"}, "negative_prompt: Call takes no 'negative_prompt'; remove it"),
        ({"image": "/no/such.png"}, "request.image: there is no file '/no/such.png'"),
        ({"image": None}, "request.image: Call cannot be called without it; set request.image"),
    ],
)
def test_a_value_of_the_request_that_no_parameter_takes_is_refused(
    changes: dict[str, Any], line: str, picture: str
) -> None:
    assert lines(Call, {}, **{"image": picture, **changes}) == [line]


def test_a_frame_rate_and_several_outputs_pass_where_the_call_knows_neither() -> None:
    assert lines(Unconditional, {}, prompt="", fps=8, num_outputs=2) == []


def test_text_and_seed_are_refused_where_the_call_takes_neither() -> None:
    assert lines(Unconditional, {}, seeds=(1,)) == [
        "prompt: Unconditional takes no 'prompt'; remove it",
        "seed: Unconditional takes no generator, so a seed has no effect; remove it",
    ]


def test_one_line_for_the_same_mistake_of_several_requests() -> None:
    problems = check_arguments(Unconditional, {}, [RequestSpec(prompt="x"), RequestSpec(prompt="y")])
    assert len(problems) == 1


def test_the_call_gets_what_was_said_and_nothing_else(picture: str) -> None:
    request = RequestSpec(prompt="x", height=16, image=picture, seeds=(1,), num_outputs=1, fps=8)
    given = call_arguments(Call, {"true_cfg_scale": 2.0, "latents": None}, request)
    assert given == {"prompt": "x", "height": 16, "image": picture, "true_cfg_scale": 2.0, "latents": None}


def test_the_place_of_a_wrong_argument_is_told(tiny_folder: Any) -> None:
    spec = whole_builders.whole(tiny_folder("wan21"), {"guidance_rescale": 0.7})
    origins = {
        "pipeline.args.guidance_rescale": Origin("pipeline", "mine.yaml:7"),
        "pipeline.defaults.request.strength": Origin("pipeline", "mine.yaml:12"),
    }
    with pytest.raises(ConfigError) as caught:
        check_requests(spec, [spec_builders.request(strength=0.5)], origins)
    assert [problem.where for problem in caught.value.problems] == ["mine.yaml:7", "mine.yaml:12"]
    assert "WanPipeline has no argument 'guidance_rescale'" in str(caught.value)
