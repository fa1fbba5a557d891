"""Components that a pipeline's folder lists and its YAML does not."""

import json
from pathlib import Path

import pytest

from framework.compose.composer import compose
from framework.errors import ConfigError
from framework.graph import build_graph

DIGITS = ["pipeline=diffusers", "pipeline.model.source=embedded:digits", "prompt=x"]
CONFIGS = {
    "vae": "config.json",
    "unet": "config.json",
    "tokenizer": "tokenizer_config.json",
    "scheduler": "scheduler_config.json",
    "feature_extractor": "preprocessor_config.json",
}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A pipeline's folder with configs and no weights; its text encoder was not downloaded."""
    index = {name: ["diffusers", "AnyClass"] for name in (*CONFIGS, "text_encoder")}
    index["image_encoder"] = [None, None]
    (tmp_path / "model_index.json").write_text(json.dumps({"_class_name": "StableDiffusionPipeline", **index}))
    for name, file in CONFIGS.items():
        (tmp_path / name).mkdir()
        (tmp_path / name / file).write_text("{}")
    return tmp_path


def words(folder: Path, *more: str) -> list[str]:
    return ["pipeline=diffusers", f"pipeline.model.source={folder}", "prompt=x", *more]


def test_the_modules_of_the_folder_are_components_in_the_order_of_their_calls(folder: Path) -> None:
    components = compose(words(folder)).pipeline.components
    groups = {name: component.group for name, component in components.items()}
    assert list(groups.items()) == [("text_encoder", "text_encoder"), ("unet", "dit"), ("vae", "vae")]


def test_what_the_user_says_of_one_component_stays_and_the_others_join(folder: Path) -> None:
    spec = compose(
        words(folder, "pipeline.components.unet.dtype=bfloat16", "component_residency.dit=layerwise-offload")
    )
    assert {name: part.dtype for name, part in spec.pipeline.components.items()} == {
        "text_encoder": None,
        "unet": "bfloat16",
        "vae": None,
    }
    assert spec.placements["unet"].mode == "layerwise-offload"


def test_the_stage_uses_what_the_folder_lists() -> None:
    uses = build_graph(compose(DIGITS).pipeline).used_components()
    assert uses == {"text_encoder", "transformer", "transformer_2", "vae"}


def test_what_was_listed_is_recorded(folder: Path) -> None:
    assert compose(words(folder)).config["pipeline"]["components"]["vae"] == {"group": "vae"}


def test_components_that_are_stated_need_no_folder() -> None:
    spec = compose(
        ["pipeline=diffusers", "pipeline.model.source=a/b", "prompt=x", "pipeline.components.unet.dtype=null"]
    )
    assert list(spec.pipeline.components) == ["unet"]


@pytest.mark.parametrize(
    ("source", "reason"),
    [
        (
            "a/b",
            "'a/b' is not on this machine; get it with `framework download` and the same keys",
        ),
        ("./none", "the folder './none' does not exist"),
        ("x" * 300, "File name too long"),
    ],
)
def test_a_folder_that_is_not_here_is_named_with_its_place(source: str, reason: str) -> None:
    word = f"pipeline.model.source={source}"
    with pytest.raises(ConfigError) as caught:
        compose(["pipeline=diffusers", word, "prompt=x"])
    (problem,) = caught.value.problems
    assert (problem.key, problem.where.startswith("from the command line: ")) == ("pipeline.model.source", True)
    assert reason in problem.reason


def test_an_index_that_is_no_json_is_named(folder: Path) -> None:
    (folder / "model_index.json").write_text("{")
    with pytest.raises(ConfigError, match=r"model_index\.json: cannot be read as JSON"):
        compose(words(folder))


def test_a_prompt_is_asked_for() -> None:
    with pytest.raises(ConfigError, match="prompt: a prompt is required"):
        compose(DIGITS[:2])
