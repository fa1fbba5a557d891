"""Reading `model_index.json` and the configs beside it."""

import json
from pathlib import Path
from typing import Any

import pytest

from framework.errors import LoadError
from framework.loading.index import ClassName, read_configs, read_index
from framework.paths import EMBEDDED_MODELS


def write(folder: Path, content: Any) -> Path:
    (folder / "model_index.json").write_text(content if isinstance(content, str) else json.dumps(content))
    return folder


def test_components_and_options_are_told_apart(tmp_path: Path) -> None:
    content = {
        "_class_name": "WanPipeline",
        "_diffusers_version": "0.42.1",
        "boundary_ratio": 0.9,
        "sizes": [1, 2],
        "vae": ["diffusers", "AutoencoderKLWan"],
        "transformer_2": [None, None],
    }
    index = read_index(write(tmp_path, content))
    assert index.pipeline_class == ClassName("diffusers", "WanPipeline")
    assert index.components == {"vae": ClassName("diffusers", "AutoencoderKLWan"), "transformer_2": None}
    assert index.options == {"boundary_ratio": 0.9, "sizes": [1, 2]}


def test_the_embedded_models_configs_are_read() -> None:
    configs = read_configs(read_index(EMBEDDED_MODELS / "digits"))
    assert configs["vae"]["scale_factor_spatial"] == 4
    assert configs["scheduler"]["_class_name"] == "UniPCMultistepScheduler"


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        ("{", "cannot be read as JSON"),
        ("[]", "expected a JSON object"),
        ({"vae": ["diffusers", "X"]}, "_class_name: expected the name of a pipeline class, found None"),
        ({"_class_name": "P", "vae": [1, "X"]}, r"vae: expected \[library, class\], found \[1, 'X'\]"),
        ({"_class_name": "P", "vae": [None, "X"]}, r"vae: expected \[library, class\]"),
        ({"_class_name": ["only"]}, "_class_name: expected"),
    ],
)
def test_what_is_no_index_is_refused_naming_the_file(tmp_path: Path, content: Any, reason: str) -> None:
    with pytest.raises(LoadError, match=rf"model_index.json: {reason}"):
        read_index(write(tmp_path, content))
