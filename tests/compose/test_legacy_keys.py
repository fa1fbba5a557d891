"""Legacy keys: every spelling, what each is folded into, and what is refused by name."""

from itertools import combinations
from pathlib import Path
from typing import Any

import pytest
from resolver_cases import WAN, entries, errors, facts, modes, notes, run

from framework.compose.legacy import LEGACY_KEYS, REFUSED, page
from framework.compose.residency import resolve
from framework.compose.sources import Entry, MachineFacts, Sources
from framework.errors import ConfigError, Origin
from framework.spec import Knob

RESIDENT, COMPONENT, LAYERWISE = "resident", "component-offload", "layerwise-offload"
FAMILIES = facts(
    transformer_2=(4,), text_encoder_3=(4,), image_encoder=(4,), condition_image_encoder=(4,), audio_vae=(4,)
)
MANY = facts(
    transformer=(4,),
    text_encoder=(4,),
    text_encoder_2=(4,),
    image_encoder=(4,),
    vae=(4,),
    video_vae=(4,),
    audio_vae=(4,),
    movie_maker=(4,),
)


def test_the_page_of_legacy_keys_is_current() -> None:
    written = Path(__file__).parents[2] / "docs" / "legacy-keys.md"
    assert written.read_text(encoding="utf-8") == page()


@pytest.mark.parametrize("key", sorted(REFUSED))
def test_a_key_without_counterpart_is_refused_by_name_with_what_to_use(key: str) -> None:
    message = errors({key.replace("_", "-").upper(): 1})
    assert "no counterpart here" in message
    assert REFUSED[key] in message


def test_an_unknown_key_names_the_nearest_legacy_key() -> None:
    assert "did you mean 'dit_cpu_offload'?" in errors({"dit_cpu_ofload": True})


@pytest.mark.parametrize("value", [False, "false", "False", "off", "OFF", "0", 0, "no", "n", " f "])
def test_cf06_every_spelling_of_false_is_an_explicit_false(value: Any) -> None:
    found = modes({"vae_cpu_offload": value}, pipeline={"pipeline.defaults.residency.vae": COMPONENT})
    assert found["vae"] == RESIDENT


@pytest.mark.parametrize("value", [True, "true", "on", "1", 1, "YES"])
def test_cf06_every_spelling_of_true_is_true(value: Any) -> None:
    assert modes({"vae_cpu_offload": value})["vae"] == COMPONENT


@pytest.mark.parametrize("value", ["maybe", "", "2", 2, 1.5, [], "null"])
def test_cf06_anything_else_is_an_error_with_key_and_value(value: Any) -> None:
    message = errors({"vae_cpu_offload": value})
    assert message.startswith("user.yaml: vae_cpu_offload: vae_cpu_offload: ")
    assert "is neither true nor false" in message


BOOLEANS = {
    "dit_cpu_offload": "transformer_2",
    "text_encoder_cpu_offload": "text_encoder_3",
    "image_encoder_cpu_offload": "image_encoder",
    "vae_cpu_offload": "audio_vae",
}


@pytest.mark.parametrize(("key", "component"), BOOLEANS.items())
def test_each_flag_places_its_family_and_no_other(key: str, component: str) -> None:
    below = {"pipeline.defaults.residency.all": LAYERWISE}
    found = modes({key: True}, FAMILIES, pipeline=below)
    assert found[component] == COMPONENT
    found = modes({key: False}, FAMILIES, pipeline=below)
    assert found[component] == RESIDENT
    covered = {component, "condition_image_encoder"} if key == "vae_cpu_offload" else {component}
    assert {name for name, mode in found.items() if mode == RESIDENT} == covered


@pytest.mark.parametrize(
    "spelling",
    [
        "vae,text_encoder",
        ["vae", "text_encoder"],
        ["VAE , Text-Encoder"],
        '["vae", "text-encoder"]',
        ("vae,,", "TEXT_ENCODER"),
    ],
)
def test_lists_have_one_normaliser(spelling: Any) -> None:
    for key, mode in (("cpu_offload_components", COMPONENT), ("layerwise_offload_components", LAYERWISE)):
        found = modes({key: spelling})
        assert (found["vae"], found["text_encoder"], found["transformer"]) == (mode, mode, RESIDENT)


@pytest.mark.parametrize("spelling", [False, 3, {"vae": True}, [1], [None], "[vae"])
def test_what_is_no_list_is_refused(spelling: Any) -> None:
    assert "cpu_offload_components" in errors({"cpu_offload_components": spelling})


def test_a_blank_list_says_nothing() -> None:
    assert set(modes({"cpu_offload_components": " , "}).values()) == {RESIDENT}


CPU_GROUPS = {
    "dit": {"transformer"},
    "text_encoder": {"text_encoder", "text_encoder_2"},
    "image_encoder": {"image_encoder"},
    "vae": {"vae", "video_vae", "audio_vae"},
}


@pytest.mark.parametrize("pair", list(combinations(CPU_GROUPS, 2)))
def test_sx1_groups_of_a_list_are_a_union(pair: tuple[str, str]) -> None:
    expected = CPU_GROUPS[pair[0]] | CPU_GROUPS[pair[1]]
    for spelling in (list(pair), list(pair[::-1])):
        found = modes({"cpu_offload_components": spelling}, MANY)
        assert {name for name, mode in found.items() if mode == COMPONENT} == expected


def test_cpu_list_none_is_resident_for_everything_and_stands_alone() -> None:
    below = {"pipeline.defaults.residency.all": COMPONENT}
    assert set(modes({"cpu_offload_components": "none"}, pipeline=below).values()) == {RESIDENT}
    assert "cannot be combined" in errors({"cpu_offload_components": "none,vae"})


def test_cpu_list_all_and_dynamic_names() -> None:
    assert set(modes({"cpu_offload_components": "all"}, MANY).values()) == {COMPONENT}
    found = modes({"cpu_offload_components": "movie-maker"}, MANY)
    assert [name for name, mode in found.items() if mode == COMPONENT] == ["movie_maker"]


def test_the_image_encoder_of_a_cpu_list_covers_the_condition_encoder() -> None:
    assert modes({"cpu_offload_components": "image_encoder"}, FAMILIES)["condition_image_encoder"] == COMPONENT
    assert modes({"image_encoder_cpu_offload": True}, FAMILIES)["condition_image_encoder"] == RESIDENT


def test_sx7_a_cpu_list_may_be_mixed_with_flags_and_wins_where_it_matches() -> None:
    found = modes({"cpu_offload_components": "vae", "vae_cpu_offload": False, "text_encoder_cpu_offload": True})
    assert (found["vae"], found["text_encoder"], found["transformer"]) == (COMPONENT, COMPONENT, RESIDENT)
    line = notes({"cpu_offload_components": "vae", "vae_cpu_offload": False})
    assert "vae_cpu_offload=resident: no effect on vae: beaten by cpu_offload_components=component-offload" in line


def test_layerwise_list_default_is_encoders_and_the_limited_vaes() -> None:
    found = modes({"layerwise_offload_components": "default"}, MANY)
    streamed = {name for name, mode in found.items() if mode == LAYERWISE}
    assert streamed == {"text_encoder", "text_encoder_2", "image_encoder", "vae", "video_vae"}
    assert "matches no component" not in notes({"layerwise_offload_components": "default"})


def test_layerwise_list_takes_audio_vae_by_name_only() -> None:
    assert modes({"layerwise_offload_components": "vae"}, MANY)["audio_vae"] == RESIDENT
    assert modes({"layerwise_offload_components": "audio-vae"}, MANY)["audio_vae"] == LAYERWISE


def test_the_alias_of_the_layerwise_list_is_the_same_key() -> None:
    assert modes({"layerwise_offload_modules": "vae"})["vae"] == LAYERWISE
    message = errors({"layerwise_offload_modules": "vae", "layerwise_offload_components": "dit"})
    assert "contradicts" in message
    assert "layerwise_offload_components=dit" in message


def test_the_layerwise_flag_streams_the_dits_only() -> None:
    found = modes({"dit_layerwise_offload": True})
    assert {name for name, mode in found.items() if mode == LAYERWISE} == {"transformer", "transformer_2"}
    assert set(modes({"dit_layerwise_offload": True}, facts(unet=(4,))).values()) == {LAYERWISE}


def test_cf02_component_and_layerwise_of_a_dit_combine_with_a_line_naming_both() -> None:
    asked = {"dit_cpu_offload": True, "dit_layerwise_offload": True}
    found = modes(asked)
    assert (found["transformer"], found["transformer_2"], found["connectors"]) == (LAYERWISE, LAYERWISE, COMPONENT)
    lines = [line for line in run(asked).notes if "combines" in line]
    assert len(lines) == 1
    assert "dit_cpu_offload" in lines[0]
    assert "dit_layerwise_offload" in lines[0]
    assert "loaded on the host, then streamed: transformer, transformer_2" in lines[0]


FOLDS = {
    "dit_cpu_offload": (True, "component_residency=dit=component-offload,connectors=component-offload"),
    "text_encoder_cpu_offload": (False, "component_residency=text_encoder=resident"),
    "image_encoder_cpu_offload": (True, "would be component_residency"),
    "vae_cpu_offload": ("on", "component_residency=vae=component-offload"),
    "cpu_offload_components": (["vae"], "component_residency=vae=component-offload"),
    "dit_layerwise_offload": (True, "component_residency=dit=layerwise-offload"),
    "layerwise_offload_components": ("default", "component_residency=text_encoder=layerwise-offload,vae="),
    "dit_offload_prefetch_size": (2, "layerwise.dit.prefetch=2"),
    "dit_layerwise_resident_layers": (0.5, "layerwise.dit.resident=0.5 with the policy strided"),
    "dit_layerwise_residency_policy": ("leading", "layerwise.dit.policy=leading"),
    "layerwise_prefetch_size": ("vae=2", "layerwise.vae.prefetch=2"),
    "layerwise_resident_layers": ({"vae": 2}, "layerwise.vae.resident=2 with the policy strided"),
    "layerwise_residency_policy": ('{"vae": "leading"}', "layerwise.vae.policy=leading"),
    "use_fsdp_inference": (True, "component_residency=dit=resident"),
    "pin_cpu_memory": (False, "budget.pinned=0"),
    "offload_during_compile": (False, "component_residency"),
    "warmup_mode": ("request", "warmup=request"),
}


def test_every_legacy_key_has_a_folding_line_under_test() -> None:
    assert set(FOLDS) | {"performance_mode"} == set(LEGACY_KEYS)


@pytest.mark.parametrize("key", FOLDS)
def test_a_legacy_key_is_folded_with_one_line_naming_old_and_new(key: str) -> None:
    value, new = FOLDS[key]
    for spelling in (key, key.upper().replace("_", "-")):
        lines = [line for line in run({spelling: value}).notes if "legacy key" in line]
        assert len(lines) == 1
        assert f"{key}=" in lines[0]
        assert new in lines[0]


def test_legacy_prefetch_zero_meant_one_ahead_and_stays_zero_on_mps() -> None:
    asked = {"dit_layerwise_offload": True, "dit_offload_prefetch_size": 0.0}
    assert run(asked).placements["transformer"].prefetch == Knob("1", (1,))
    on_mps = run(asked, machine=MachineFacts(kind="mps"))
    assert on_mps.placements["transformer"].prefetch == Knob("0.0", (0,))


def test_legacy_resident_layers_are_strided_unless_a_policy_is_given() -> None:
    asked = {"dit_layerwise_offload": True, "dit_layerwise_resident_layers": 10}
    assert run(asked).placements["transformer"].policy == "strided"
    given = asked | {"dit_layerwise_residency_policy": "leading"}
    assert run(given).placements["transformer"].policy == "leading"


def test_a_legacy_map_beats_the_scalar_of_the_dits_and_does_not_leak() -> None:
    asked = {"layerwise_offload_components": "dit,vae", "dit_offload_prefetch_size": 3}
    placements = run(asked | {"layerwise_prefetch_size": "transformer_2=5"}).placements
    prefetch = {name: placement.prefetch for name, placement in placements.items() if placement.prefetch}
    assert prefetch == {"transformer": Knob("3", (3,)), "transformer_2": Knob("5", (5,)), "vae": Knob("1", (1,))}


@pytest.mark.parametrize("value", ["transformer", "transformer=abc", "transformer=-1", '{"transformer": true}', 4])
def test_a_bad_legacy_map_is_refused_by_name(value: Any) -> None:
    assert "layerwise_prefetch_size" in errors({"layerwise_prefetch_size": value})


@pytest.mark.parametrize(
    "spelling",
    [
        "vae=component-offload, Transformer-2 = LAYERWISE_OFFLOAD ,",
        ["vae=component-offload", "transformer_2=layerwise-offload"],
        ["vae=component-offload,transformer_2=layerwise-offload"],
        [{"vae": "component-offload"}, {" TRANSFORMER-2 ": " Layerwise_Offload "}],
        {" VAE ": " component_offload", "transformer-2": "layerwise-offload"},
        '{"vae": "component-offload", "transformer_2": "layerwise-offload", "dit": null}',
    ],
)
def test_sx3_modes_have_one_normaliser(spelling: Any) -> None:
    found = modes({"component_residency": spelling})
    assert (found["vae"], found["transformer_2"], found["transformer"]) == (COMPONENT, LAYERWISE, RESIDENT)


@pytest.mark.parametrize("value", [False, True])
def test_sx3_a_boolean_for_a_mode_lists_the_modes(value: bool) -> None:
    message = errors({"component_residency.vae": value})
    assert "YAML reads off, no, on and yes as booleans" in message
    assert "modes are resident, component-offload, layerwise-offload" in message


@pytest.mark.parametrize(
    ("value", "part"),
    [
        ("vae", "lacks '='; write COMPONENT=MODE"),
        ("=resident", "a name is empty"),
        ("vae=fast", "unknown residency mode 'fast'"),
        ("vae=residents", "did you mean 'resident'?"),
        ("vae=snapshot-offload", "component-offload never copies"),
        ("vae=", "unknown residency mode ''"),
        ({1: "resident"}, "1 is not a name"),
        ({"vae": 3}, "3 is not a residency mode"),
        (True, "true is not understood"),
        ('{"vae"', "is not valid JSON"),
    ],
)
def test_a_bad_mode_map_says_what_is_wrong(value: Any, part: str) -> None:
    assert part in errors({"component_residency": value})


DUPLICATES: list[dict[str, Any]] = [
    {"component_residency": "vae=resident,vae=layerwise-offload"},
    {"component_residency": {"VAE": "resident", "vae": "layerwise-offload"}},
    {"component_residency": '{"transformer-2": "resident", "transformer_2": "layerwise-offload"}'},
    {"component_residency.vae": "resident", "residency.modes.vae": "component-offload"},
    {"component_residency.dit": "resident", "pipeline.defaults.residency.DIT": "component-offload"},
    {"dit_cpu_offload": True, "dit-cpu-offload": "off"},
    {"layerwise.vae.prefetch": 1, "residency.layerwise.VAE.prefetch": 2},
    {"layerwise_prefetch_size": "vae=1,VAE=2"},
    {"dit_offload_prefetch_size": 1, "DIT_OFFLOAD_PREFETCH_SIZE": 2},
    {"mode": "speed", "performance_mode": "memory"},
]


@pytest.mark.parametrize("user", DUPLICATES, ids=str)
def test_sx4_contradictory_duplicates_are_refused_naming_both_origins(user: dict[str, Any]) -> None:
    message = errors(user)
    assert "contradicts" in message
    for key in user:
        assert f"user.yaml: {key}" in message


def test_sx4_equal_duplicates_are_no_contradiction() -> None:
    assert modes({"component_residency": "vae=resident,VAE=resident", "residency.modes.vae": "Resident"})["vae"]
    assert modes({"dit_cpu_offload": True, "dit-cpu-offload": "yes"})["transformer"] == COMPONENT


def test_all_problems_are_told_at_once() -> None:
    with pytest.raises(ConfigError) as caught:
        run({"vae_cpu_offload": "maybe", "component_residency.x": RESIDENT, "tp_size": 2, "mode": "fast"})
    assert len(caught.value.problems) == 4


def test_pinning_and_warmup_are_handed_on_under_their_new_keys() -> None:
    folded = {entry.key: entry.value for entry in run({"pin_cpu_memory": "no", "warmup_mode": False}).folded}
    assert folded == {"budget.pinned": 0, "warmup": "off"}
    assert run({"pin_cpu_memory": True}).folded == ()


@pytest.mark.parametrize(
    ("key", "value", "part"),
    [
        ("warmup_mode", "server", "use warmup=request"),
        ("warmup_mode", "soon", "choose from off, request"),
        ("offload_during_compile", True, "numerics.compile=blocks"),
        ("ltx2_two_stage_device_mode", "snapshot", "component_residency"),
    ],
)
def test_what_cannot_be_honoured_is_refused_with_the_key_to_use(key: str, value: Any, part: str) -> None:
    assert part in errors({key: value})


def test_a_message_from_the_command_line_says_so() -> None:
    entry = Entry("vae_cpu_offload", "maybe", Origin("user", "from the command line: vae_cpu_offload=maybe"))
    with pytest.raises(ConfigError, match=r"^\(from the command line: vae_cpu_offload=maybe\): vae_cpu_offload: "):
        resolve(Sources(user=(entry,)), WAN, None)


def test_a_legacy_key_in_a_preset_is_of_that_layer() -> None:
    sources = Sources(preset=entries("preset", {"vae_cpu_offload": True}), user=entries("user", {"dit-cpu-offload": 0}))
    reason = resolve(sources, WAN, None).placements["vae"].reasons[0]
    assert (reason.origin.layer, reason.key, reason.value) == ("preset", "vae_cpu_offload", COMPONENT)
    assert "belongs to your own keys" in errors(preset={"performance_mode": "speed"})
