"""What a family of pictures refuses before a weight is read, and what composing already says."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import tiny_pipelines
from image_builders import CASES, family_pipeline, family_request, words

from framework.compose import compose
from framework.errors import ConfigError
from framework.runtime.run import check_requests

SIZES = {"flux": 4, "flux_kontext": 4, "flux2_klein": 4, "qwen_image": 8, "qwen_image_edit": 8, "z_image": 4, "sd3": 2}


def refusals(name: str, tiny_folder: Callable[[str], Path], picture: str, **changes: Any) -> list[str]:
    case = CASES[name]
    spec, wanted = family_pipeline(case, tiny_folder), family_request(case, picture, **changes)
    try:
        check_requests(spec, (wanted,))
    except ConfigError as error:
        return [str(problem) for problem in error.problems]
    return []


@pytest.mark.parametrize(("name", "multiple"), SIZES.items())
def test_a_size_that_would_be_rounded_is_refused(
    name: str, multiple: int, tiny_folder: Callable[[str], Path], picture: str
) -> None:
    found = refusals(name, tiny_folder, picture, height=32 + multiple // 2, width=32)
    assert found == [f"request.height: {32 + multiple // 2} is no multiple of {multiple}; try {32}"]
    assert refusals(name, tiny_folder, picture, height=32 + multiple, width=32) == []


@pytest.mark.parametrize(
    ("name", "longest"), [("flux", 512), ("flux_kontext", 512), ("qwen_image", 1024), ("sd3", 512)]
)
def test_more_tokens_than_a_pipeline_takes_are_refused(
    name: str, longest: int, tiny_folder: Callable[[str], Path], picture: str
) -> None:
    (found,) = refusals(name, tiny_folder, picture, max_sequence_length=longest + 1)
    assert (
        found
        == f"request.max_sequence_length: {longest + 1} tokens are more than this pipeline takes; at most {longest}"
    )
    assert refusals(name, tiny_folder, picture, max_sequence_length=longest) == []


def test_guidance_for_a_checkpoint_that_was_distilled_without_is_refused(
    tiny_folder: Callable[[str], Path], picture: str
) -> None:
    (found,) = refusals("flux_schnell", tiny_folder, picture, guidance_scale=3.5)
    assert found.startswith("request.guidance_scale: this checkpoint was distilled without guidance")
    assert refusals("flux_schnell", tiny_folder, picture, guidance_scale=0.0) == []
    assert refusals("flux", tiny_folder, picture, guidance_scale=3.5) == []


def test_a_distilled_klein_reads_neither_guidance_nor_a_negative_prompt(
    tiny_folder: Callable[[str], Path], picture: str, tmp_path: Path
) -> None:
    folder = tmp_path / "distilled"
    pipeline = tiny_pipelines.build("flux2_klein")
    pipeline.register_to_config(is_distilled=True)
    pipeline.save_pretrained(folder)
    found = refusals("flux2_klein", lambda name: folder, picture, guidance_scale=4.0, negative_prompt="bad")
    assert [line.partition(":")[0] for line in found] == ["request.guidance_scale", "negative_prompt"]
    assert refusals("flux2_klein", lambda name: folder, picture, guidance_scale=1.0) == []


def test_a_size_beyond_the_positions_of_sd3_is_refused(tiny_folder: Callable[[str], Path], picture: str) -> None:
    (found,) = refusals("sd3", tiny_folder, picture, width=66)
    assert found == "request.width: 66 is more than this checkpoint has positions for; at most 64"


def test_an_editor_without_a_picture_is_refused(tiny_folder: Callable[[str], Path], picture: str) -> None:
    (found,) = refusals("qwen_image_edit", tiny_folder, picture, image=None)
    assert found == "request.image: this pipeline starts from a picture; set request.image=FILE"


@pytest.mark.parametrize("name", ["flux_kontext", "flux2_klein", "qwen_image_edit"])
def test_a_file_that_is_no_picture_is_refused(
    name: str, tiny_folder: Callable[[str], Path], picture: str, tmp_path: Path
) -> None:
    (tmp_path / "text.png").write_text("no picture")
    for file in ("text.png", "missing.png"):
        (found,) = refusals(name, tiny_folder, picture, image=str(tmp_path / file))
        assert found.startswith(f"request.image: '{tmp_path / file}' is no picture that can be read")


def test_a_picture_too_small_or_too_long_for_klein_is_refused(
    tiny_folder: Callable[[str], Path], picture: str, tmp_path: Path
) -> None:
    from PIL import Image

    for size in ((63, 64), (64, 640)):
        Image.new("RGB", size).save(tmp_path / "start.png")
        (found,) = refusals("flux2_klein", tiny_folder, picture, image=str(tmp_path / "start.png"))
        assert found.startswith(f"request.image: {size[0]} x {size[1]} pixels")


def test_a_folder_of_another_family_is_refused(tiny_folder: Callable[[str], Path]) -> None:
    import spec_builders

    from framework.errors import LoadError

    spec = family_pipeline(replace(CASES["flux"], tiny="flux_kontext"), tiny_folder)
    with pytest.raises(LoadError, match="holds a FluxKontextPipeline, which family 'flux' does not run"):
        spec_builders.load(spec)


def test_a_negative_prompt_that_flux_does_not_read_gets_a_line(tmp_path: Path) -> None:
    overrides = words(CASES["flux"], tmp_path)
    (note,) = compose([*overrides, "negative_prompt=bad"]).notes
    assert note.endswith("no effect: guidance_scale_2 is not set, and a negative prompt is read above 1 only")
    assert compose([*overrides, "negative_prompt=bad", "request.guidance_scale_2=2"]).notes == ()


def test_z_image_reads_a_negative_prompt_above_no_guidance(tmp_path: Path) -> None:
    overrides = [*words(CASES["z_image"], tmp_path), "negative_prompt=bad"]
    (note,) = compose(overrides).notes
    assert note.endswith("no effect: guidance_scale is 0, and a negative prompt is read above 0 only")
    assert compose([*overrides, "request.guidance_scale=0.5"]).notes == ()


@pytest.mark.parametrize("name", ["flux", "sd3", "z_image", "qwen_image"])
def test_a_picture_for_a_family_that_takes_none_is_refused(name: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"request\.image: nothing in this pipeline reads it"):
        compose([*words(CASES[name], tmp_path), "request.image=start.png"])


def test_an_editor_says_that_it_cuts_no_text(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"request\.max_sequence_length: nothing in this pipeline reads it"):
        compose([*words(CASES["qwen_image_edit"], tmp_path), "request.max_sequence_length=64"])
