"""Bug reports of other systems on the packaged configs of several families: CF-04, CF-05, CF-08, LI-02."""

import json
from pathlib import Path

import pytest

from framework.commands.show import to_json
from framework.compose.composer import compose
from framework.errors import ConfigError
from framework.graph import build_graph

CONFIGS = ("flux1_dev", "sdxl", "z_image_turbo", "hunyuan_video15", "wan21_i2v_14b")


@pytest.mark.parametrize("name", CONFIGS)
@pytest.mark.parametrize("key", ["component_residency", "layerwise"])
def test_cf04_a_component_that_the_family_does_not_have_is_an_error_with_the_nearest_name(name: str, key: str) -> None:
    wrong, near = ("unnet", "unet") if name == "sdxl" else ("trnsformer", "transformer")
    value = "layerwise-offload" if key == "component_residency" else "{prefetch: 2}"
    with pytest.raises(ConfigError) as caught:
        compose([f"pipeline={name}", f"{key}.{wrong}={value}"])
    (problem,) = caught.value.problems
    assert problem.key.startswith(f"{key}.{wrong}")
    assert f"did you mean '{near}'" in str(problem)


@pytest.mark.parametrize(
    ("name", "absent"), [("z_image_turbo", "text_encoder_2"), ("flux1_dev", "transformer_2"), ("sdxl", "image_encoder")]
)
def test_li02_a_placement_of_what_the_family_does_not_have_is_said(name: str, absent: str) -> None:
    words = [f"pipeline={name}", f"component_residency.{absent}=layerwise-offload"]
    if absent == "image_encoder":  # a group, which may match nothing
        assert any(absent in note for note in compose(words).notes)
        return
    with pytest.raises(ConfigError, match=rf"component_residency\.{absent}"):
        compose(words)


@pytest.mark.parametrize("name", ["flux1_dev", "sana"])
def test_cf04_knobs_of_a_component_that_is_not_streamed_are_said(name: str) -> None:
    words = [f"pipeline={name}", "component_residency.transformer=resident", "layerwise.transformer.prefetch=2"]
    assert any("layerwise.transformer" in note for note in compose(words).notes)


def test_cf08_a_component_said_to_have_no_layers_cannot_be_streamed() -> None:
    words = ["pipeline=sdxl", "pipeline.components.vae.layers=[]", "component_residency.vae=layerwise-offload"]
    with pytest.raises(ConfigError, match=r"component_residency\.vae"):
        compose(words)


NAMES = ("vision_language_encoder", "audio_vae", "connectors", "movq", "transformer")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """An index with kinds of components that no packaged family has."""
    index = {"_class_name": "GlmImagePipeline", **{name: ["diffusers", "AnyClass"] for name in NAMES}}
    (tmp_path / "model_index.json").write_text(json.dumps(index))
    for name in NAMES:
        (tmp_path / name).mkdir()
        (tmp_path / name / "config.json").write_text("{}")
    return tmp_path


@pytest.mark.parametrize("name", NAMES)
def test_cf05_every_name_of_the_index_can_be_placed_by_itself_and_by_all(name: str, folder: Path) -> None:
    words = ["pipeline=diffusers", f"pipeline.model.source={folder}", "prompt=x"]
    alone = compose([*words, f"component_residency.{name}=component-offload"])
    assert {part for part, place in alone.placements.items() if place.mode == "component-offload"} == {name}
    every = compose([*words, "component_residency.all=component-offload"])
    assert {place.mode for place in every.placements.values()} == {"component-offload"}


def test_cf05_groups_are_shown_and_take_what_belongs_to_them(folder: Path) -> None:
    words = ["pipeline=diffusers", f"pipeline.model.source={folder}", "prompt=x"]
    spec = compose([*words, "component_residency.vae=component-offload"])
    shown = to_json(spec, build_graph(spec.pipeline))["components"]
    groups = {name: part["group"] for name, part in shown.items()}
    assert groups["transformer"] == "dit"
    assert groups["vision_language_encoder"] is None
    taken = {name for name, part in shown.items() if part["mode"] == "component-offload"}
    assert taken == {name for name, group in groups.items() if group == "vae"}
    assert taken
