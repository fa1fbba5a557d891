"""Groups, scopes and selectors: which components a name covers."""

import pytest
from resolver_cases import errors, facts, modes, notes, run

from framework.compose.selectors import briefest, group_of, scope_targets

RESIDENT, COMPONENT, LAYERWISE = "resident", "component-offload", "layerwise-offload"

GROUPS_BY_NAME = {
    "transformer": "dit",
    "transformer_2": "dit",
    "video_dit_2": "dit",
    "audio_dit": "dit",
    "paint_transformer": "dit",
    "delight_transformer": "dit",
    "unet": "dit",
    "prior": "dit",
    "controlnet": "dit",
    "text_encoder": "text_encoder",
    "text_encoder_3": "text_encoder",
    "delight_text_encoder": "text_encoder",
    "image_encoder": "image_encoder",
    "vae": "vae",
    "vae_2": "vae",
    "audio_vae": "vae",
    "hy3dshape_vae": "vae",
    "paint_vae": "vae",
    "connectors": None,
    "dual_tower_bridge": None,
    "vision_language_encoder": None,
    "condition_image_encoder": None,
    "sound_tokenizer": None,
    "spatial_upsampler": None,
    "vocoder": None,
    "movq": None,
}


@pytest.mark.parametrize(("name", "group"), GROUPS_BY_NAME.items())
def test_the_name_of_a_component_says_its_group(name: str, group: str | None) -> None:
    assert group_of(name, None) == group


def test_a_declared_group_beats_the_name() -> None:
    assert group_of("movq", "vae") == "vae"
    assert group_of("transformer", "Text-Encoder") == "text_encoder"


def test_helpers_are_reached_by_exact_name_and_all_only() -> None:
    helpers = facts(connectors=None, vision_language_encoder=None, vocoder=None, transformer=(4,))
    assert modes({"component_residency": "dit=layerwise-offload,vae=component-offload"}, helpers) == {
        "connectors": RESIDENT,
        "vision_language_encoder": RESIDENT,
        "vocoder": RESIDENT,
        "transformer": LAYERWISE,
    }
    assert set(modes({"component_residency.all": COMPONENT}, helpers).values()) == {COMPONENT}


@pytest.mark.parametrize("name", ["vision_language_encoder", "audio_vae", "connectors", "movq"])
def test_cf05_any_component_of_the_pipeline_can_be_selected_by_its_name(name: str) -> None:
    components = facts(**{name: None, "transformer": (4,)})
    assert modes({f"component_residency.{name}": COMPONENT}, components)[name] == COMPONENT
    assert modes({"component_residency.all": COMPONENT}, components)[name] == COMPONENT


def test_cf05_a_placement_tells_its_group_and_helpers_have_none() -> None:
    placements = run(components=facts(audio_vae=None, connectors=None)).placements
    assert placements["audio_vae"].group == "vae"
    assert placements["connectors"].group is None


def test_exact_beats_group_beats_all() -> None:
    asked = {"component_residency": ["all=resident", "dit=component-offload", "transformer_2=layerwise-offload"]}
    found = modes(asked)
    assert (found["vae"], found["transformer"], found["transformer_2"]) == (RESIDENT, COMPONENT, LAYERWISE)
    assert modes({"component_residency": "all=component-offload,connectors=resident"})["connectors"] == RESIDENT


def test_a_group_word_that_is_a_component_too_is_exact_for_it_and_a_group_for_others() -> None:
    components = facts(vae=(4,), audio_vae=(4,))
    reasons = run({"component_residency.vae": COMPONENT}, components).placements
    assert {name: placement.mode for name, placement in reasons.items()} == {"vae": COMPONENT, "audio_vae": COMPONENT}


def test_cf04_an_unknown_name_is_an_error_in_every_layer_with_the_nearest() -> None:
    message = errors({"component_residency.trnsformer": RESIDENT})
    assert "no component or group 'trnsformer'" in message
    assert "text_encoder, transformer, transformer_2" in message
    assert "did you mean 'transformer'?" in message
    assert "trnsformer" in errors(preset={"residency.modes.trnsformer": RESIDENT})
    assert "trnsformer" in errors(pipeline={"pipeline.defaults.residency.trnsformer": RESIDENT})
    assert "visual" in errors({"cpu_offload_components": "visual"})
    assert "text_encoder_2" in errors({"component_residency.text_encoder_2": LAYERWISE})
    assert "trnsformer" in errors({"layerwise_prefetch_size": "trnsformer=2"})


def test_sx6_none_is_no_selector_of_a_mode() -> None:
    assert "'none'" in errors({"component_residency.none": RESIDENT})


def test_cf04_a_group_that_matches_nothing_is_a_line_for_the_user_and_silent_below() -> None:
    assert "component_residency.image_encoder: matches no component" in notes(
        {"component_residency.image_encoder": COMPONENT}
    )
    assert notes(preset={"residency.modes.image_encoder": COMPONENT}) == ""
    assert notes(pipeline={"pipeline.defaults.layerwise.image_encoder.prefetch": 2}) == ""


def test_legacy_scopes_are_wider_than_groups() -> None:
    names = ("transformer", "unet", "connectors", "unconditional_transformer", "vision_language_encoder", "vocoder")
    components = facts(**dict.fromkeys((*names, "dual_tower_bridge", "sound_tokenizer", "audio_vae")))
    assert set(scope_targets("dit_cpu", components)) == {*names[:-1], "dual_tower_bridge"}
    assert set(scope_targets("dit", components)) == {"transformer", "unet", "dual_tower_bridge"}
    assert set(scope_targets("vae_cpu", components)) == {"vocoder", "sound_tokenizer", "audio_vae"}
    assert set(scope_targets("vae_list", components)) == {"vocoder", "audio_vae"}
    assert scope_targets("vae_layerwise", components) == {}


def test_covered_components_are_told_as_groups_where_a_group_is_complete() -> None:
    components = facts(transformer=None, transformer_2=None, connectors=None, vae=None)
    assert briefest(dict.fromkeys(("transformer", "transformer_2", "connectors"), 0), components) == (
        "dit",
        "connectors",
    )
    assert briefest({"transformer": 0}, components) == ("transformer",)
    assert briefest(dict.fromkeys(components, 0), components) == ("all",)
