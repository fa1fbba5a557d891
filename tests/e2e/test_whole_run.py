"""Pipelines without a family by the command line alone: a folder run as a whole makes the files of the plain call."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from image_builders import frames_hashes, said_words
from whole_builders import plain_frames, tiny_args, tiny_request

from framework.cli import main
from framework.outputs.hashing import frames_sha256
from framework.spec import RequestSpec
from framework.values import Frames

DEFAULT = ("hunyuan_video",)
NAMES = ("animatediff", "chroma", "cogvideox", "hunyuan_video", "lumina2", "pixart_alpha")


def spelt(value: Any) -> str:
    """A value as the command line writes it: a map has bare keys and quoted texts."""
    if isinstance(value, dict):
        return "{" + ",".join(f"{key}:{spelt(item)}" for key, item in value.items()) + "}"
    return f"'{value}'" if isinstance(value, str) else json.dumps(value)


def words(folder: Path, args: dict[str, Any], wanted: RequestSpec) -> list[str]:
    return [
        "pipeline=diffusers",
        f"pipeline.model.source={folder}",
        "pipeline.model.dtype=float32",
        *(f"+pipeline.args.{key}={spelt(value)}" for key, value in args.items()),
        *said_words(wanted),
        "device=cpu",
    ]


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=() if name in DEFAULT else (pytest.mark.slow,)) for name in NAMES]
)
def test_a_folder_without_a_family_runs_from_the_command_line(
    name: str, tiny_folder: Callable[[str], Path], plain_pipeline: Callable[[str], Any], tmp_path: Path
) -> None:
    wanted = tiny_request(name, Path)
    assert main(["run", f"output.root={tmp_path}", *words(tiny_folder(name), tiny_args(name), wanted)]) == 0
    expected = plain_frames(plain_pipeline(name), name, wanted)
    assert frames_hashes(tmp_path) == {frames_sha256(Frames(expected))}
