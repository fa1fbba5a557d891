"""Families of pictures from a saved folder by the command line alone: the files hold what the plain call makes."""

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import image_builders
import pytest
import torch
from image_builders import CASES, family_request, plain_call, words

from framework.cli import main
from framework.outputs.hashing import frames_sha256
from framework.values import Frames

DEFAULT = ("flux_kontext",)
NAMES = ("flux", "flux_kontext", "flux2_klein_edit", "qwen_image", "qwen_image_edit", "z_image", "sd3")
KEYS = ("height", "width", "num_inference_steps", "guidance_scale", "max_sequence_length", "image")


@pytest.fixture(scope="module", autouse=True)
def _small_areas(one_thread: None) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        image_builders.small_areas(patch)
        yield


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=() if name in DEFAULT else (pytest.mark.slow,)) for name in NAMES]
)
def test_a_folder_runs_from_the_command_line(
    name: str, tiny_folder: Callable[[str], Path], plain_pipeline: Callable[[str], Any], tmp_path: Path
) -> None:
    import tiny_pipelines

    tiny_pipelines.start_picture().resize((96, 64)).save(tmp_path / "start.png")
    case = CASES[name]
    wanted = family_request(case, str(tmp_path / "start.png"))
    said = {key: getattr(wanted, key) for key in KEYS if getattr(wanted, key) is not None}
    overrides = [*words(case, tiny_folder(case.tiny)), "prompt=a cat", "seed=7", "device=cpu"]
    overrides += [f"request.{key}={value}" for key, value in said.items()]
    overrides += [f"negative_prompt={wanted.negative_prompt}"] if wanted.negative_prompt else []
    assert main(["run", f"output.root={tmp_path / 'out'}", *overrides]) == 0
    (file,) = (tmp_path / "out").rglob("record.json")
    (output,) = json.loads(file.read_text(encoding="utf-8"))["requests"][0]["outputs"]
    expected = torch.from_numpy(plain_call(case, plain_pipeline(case.tiny), wanted, "np")).unsqueeze(1)
    assert output["frames_sha256"] == frames_sha256(Frames(expected))
    assert (file.parent / output["path"]).suffix == ".png"
