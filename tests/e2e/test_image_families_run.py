"""Families from a saved folder by the command line alone: the files hold what the plain call makes."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import image_builders
import pytest
import torch
from family_builders import CASES
from image_builders import family_request, frames_hashes, plain_call, said_words, script, words

from framework.cli import main
from framework.outputs.hashing import frames_sha256
from framework.values import Frames

DEFAULT = ("flux_kontext", "sdxl_inpaint", "wan22_i2v")
LEFT_OUT = ("flux_true_guidance", "flux_kontext_text", "z_image_turbo")  # the same files as another, asked otherwise


@pytest.fixture(scope="module", autouse=True)
def _small_areas(one_thread: None) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        image_builders.small_areas(patch)
        yield


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=() if name in DEFAULT else (pytest.mark.slow,))
        for name in CASES
        if name not in LEFT_OUT
    ],
)
def test_a_folder_runs_from_the_command_line(
    name: str, tiny_folder: Callable[[str], Path], plain_pipeline: Callable[[str], Any], tmp_path: Path
) -> None:
    import tiny_pipelines

    tiny_pipelines.start_picture().resize((96, 64)).save(tmp_path / "start.png")
    case = CASES[name]
    wanted = family_request(case, str(tmp_path / "start.png"))
    overrides = [*words(case, tiny_folder(case.tiny)), *said_words(wanted), "device=cpu"]
    assert main(["run", f"output.root={tmp_path / 'out'}", *overrides]) == 0
    made = torch.from_numpy(plain_call(case, script(case, plain_pipeline), wanted, "np"))
    expected = made if made.ndim == 5 else made.unsqueeze(1)
    assert frames_hashes(tmp_path / "out") == {frames_sha256(Frames(expected))}
