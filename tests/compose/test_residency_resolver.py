"""The residency resolver: truth table, layers, machines, performance modes and what is told."""

from dataclasses import replace
from typing import Any

import pytest
from resolver_cases import WAN, errors, facts, modes, notes, run

from framework.compose.performance import GIB
from framework.compose.sources import Entry, MachineFacts
from framework.errors import Origin
from framework.registry import MODES
from framework.spec import Knob

RESIDENT, COMPONENT, LAYERWISE = MODES
LETTERS = {"R": RESIDENT, "C": COMPONENT, "L": LAYERWISE}
CUDA, CPU, MPS = (MachineFacts(kind=kind) for kind in ("cuda", "cpu", "mps"))

# CF-01. Automatic placement (the pipeline's default) prefers component-offload for everything.
# Columns: dit_layerwise_offload, dit_cpu_offload (T true, F false, - unset); then the modes of transformer,
# transformer_2 and connectors without a residency entry, and with one for `transformer`, `dit` and `all`.
# R resident, C component-offload, L layerwise-offload, M the mode of the entry.
TRUTH = """
    -- CCC MCC MMC MMM
    -T CCC MCC MMC MMM
    -F RRR MRR MMR MMM
    T- LLC MLC MMC MMM
    TT LLC MLC MMC MMM
    TF LLR MLR MMR MMM
    F- RRR MRR MMR MMM
    FT CCC MCC MMC MMM
    FF RRR MRR MMR MMM
"""
SELECTORS = ("none", "transformer", "dit", "all")
TABLE = [
    (flags, selector, mode, outcome)
    for flags, *outcomes in (line.split() for line in TRUTH.split("\n") if line.strip())
    for selector, outcome in zip(SELECTORS, outcomes, strict=True)
    for mode in MODES
]


def test_cf01_the_truth_table_has_27_times_4_rows() -> None:
    assert len(TABLE) == 27 * 4


@pytest.mark.parametrize(("flags", "selector", "mode", "outcome"), TABLE)
def test_cf01_truth_table(flags: str, selector: str, mode: str, outcome: str) -> None:
    user: dict[str, Any] = {}
    for key, letter in zip(("dit_layerwise_offload", "dit_cpu_offload"), flags, strict=True):
        if letter != "-":
            user[key] = letter == "T"
    if selector != "none":
        user["component_residency"] = {selector: mode}
    found = modes(user, pipeline={"pipeline.defaults.residency.all": COMPONENT})
    expected = [mode if letter == "M" else LETTERS[letter] for letter in outcome]
    assert [found[name] for name in ("transformer", "transformer_2", "connectors")] == expected


def test_cf01_an_entry_that_matches_nothing_does_not_disturb_the_others() -> None:
    user = {"component_residency.image_encoder": LAYERWISE, "dit_layerwise_offload": False}
    assert modes(user, pipeline={"pipeline.defaults.residency.all": COMPONENT})["transformer"] == RESIDENT


def test_an_exact_resident_leaves_the_flags_to_the_others() -> None:
    user = {"component_residency": "transformer=resident", "dit_layerwise_offload": False, "dit_cpu_offload": True}
    found = modes(user)
    assert [found[name] for name in ("transformer", "transformer_2", "connectors")] == [RESIDENT, COMPONENT, COMPONENT]


def test_explicit_false_yields_to_an_explicit_list_with_a_line() -> None:
    user = {"dit_layerwise_offload": False, "layerwise_offload_components": ["dit"]}
    assert modes(user)["transformer"] == LAYERWISE
    line = "dit_layerwise_offload=resident: no effect on transformer, transformer_2: beaten by "
    assert line + "layerwise_offload_components=layerwise-offload" in notes(user)
    assert "no effect" not in notes({"dit_layerwise_offload": False, "cpu_offload_components": "transformer"})


def test_sx8_sx11_a_false_equal_to_the_default_is_still_a_choice() -> None:
    below = {"pipeline.defaults.residency.dit": LAYERWISE}
    assert modes({"dit_layerwise_offload": False}, pipeline=below)["transformer"] == RESIDENT
    assert modes({}, pipeline=below)["transformer"] == LAYERWISE
    assert modes({"vae_cpu_offload": False}, preset={"residency.modes.vae": COMPONENT})["vae"] == RESIDENT


def test_a_higher_layer_beats_a_lower_one_whatever_the_selector() -> None:
    preset, pipeline = {"residency.modes.dit": LAYERWISE}, {"pipeline.defaults.residency.transformer": RESIDENT}
    assert modes(preset=preset, pipeline=pipeline)["transformer"] == LAYERWISE
    assert modes({"component_residency.all": COMPONENT}, preset=preset, pipeline=pipeline)["transformer"] == COMPONENT
    assert modes({"cpu_offload_components": "all"}, preset=preset)["transformer"] == COMPONENT


def test_overrides_of_preset_keys_on_the_command_line_are_the_users() -> None:
    user = {"residency.modes.dit": COMPONENT, "pipeline.defaults.layerwise.vae.prefetch": 2}
    preset = {"residency.modes.transformer": RESIDENT, "residency.modes.vae": LAYERWISE}
    result = run(user, preset=preset)
    assert result.placements["transformer"].mode == COMPONENT
    assert result.placements["vae"].prefetch == Knob("2", (2,))


def test_registered_modes_are_legal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("framework.compose.spellings.STRATEGIES.names", lambda: ("resident", "disk-offload"))
    assert modes({"component_residency.vae": "Disk_Offload"})["vae"] == "disk-offload"
    assert "modes are resident, component-offload, layerwise-offload, disk-offload" in errors(
        {"component_residency.vae": "slow"}
    )


def test_cf03_an_unused_component_with_an_explicit_mode_is_refused() -> None:
    components = WAN | {"connectors": replace(WAN["connectors"], used=False)}
    message = errors({"component_residency.connectors": COMPONENT}, components)
    assert "component_residency.connectors: no stage declares a use of 'connectors'" in message
    assert "connectors" in errors({"cpu_offload_components": "connectors"}, components)
    assert modes({"component_residency.connectors": RESIDENT}, components)["connectors"] == RESIDENT
    assert modes({}, components)["connectors"] == RESIDENT


def test_cf03_a_wider_selector_skips_an_unused_component_with_a_line() -> None:
    components = WAN | {"connectors": replace(WAN["connectors"], used=False)}
    result = run({"component_residency.all": COMPONENT}, components)
    assert result.placements["connectors"].mode == RESIDENT
    assert "component-offload is not applied to connectors: no stage declares a use of it" in "\n".join(result.notes)
    assert notes(components=components, pipeline={"pipeline.defaults.residency.connectors": COMPONENT}) == ""


NO_STACK = WAN | {"vae": replace(WAN["vae"], stack_lengths=())}


@pytest.mark.parametrize("lengths", [(), (0,), (0, 0)])
@pytest.mark.parametrize(
    "user",
    [
        {"component_residency.vae": LAYERWISE},
        {"residency.modes.all": LAYERWISE},
        {"layerwise_offload_components": "default"},
    ],
)
def test_cf08_layerwise_of_a_component_without_layers_is_refused_naming_what_works(
    lengths: tuple[int, ...], user: dict[str, Any]
) -> None:
    message = errors(user, WAN | {"vae": replace(WAN["vae"], stack_lengths=lengths)})
    assert "'vae' cannot do layerwise-offload: it has no list of layers to stream" in message
    assert "component-offload and resident would work" in message


def test_cf08_a_preset_falls_back_with_a_line() -> None:
    result = run(components=NO_STACK, preset={"residency.modes.vae": LAYERWISE})
    assert result.placements["vae"].mode == COMPONENT
    assert len(result.notes) == 1
    assert "vae cannot do layerwise-offload" in result.notes[0]
    assert "falls back to component-offload" in result.notes[0]


def test_cf08_two_lists_of_layers_or_one_empty_one_beside_a_full_one_can_be_streamed() -> None:
    found = run({"component_residency.vae": LAYERWISE}, facts(vae=(4, 0, 6))).placements["vae"]
    assert found.prefetch == Knob("1", (1, 0, 1))


def test_an_automatic_fallback_is_not_made_strict_by_an_unrelated_entry_of_the_user() -> None:
    found = modes({"component_residency.dit": RESIDENT}, NO_STACK, preset={"residency.modes.vae": LAYERWISE})
    assert found["vae"] == COMPONENT


def test_cf04_a_knob_of_a_component_that_is_not_streamed_names_the_winning_setting() -> None:
    line = notes({"layerwise.vae.prefetch": 2, "component_residency.vae": RESIDENT})
    assert line.startswith("user.yaml: layerwise.vae.prefetch: layerwise.vae.prefetch: no effect: vae is resident")
    assert "component_residency.vae=resident (user.yaml: component_residency.vae)" in line
    assert "by the default" in notes({"layerwise.vae.prefetch": 2})
    assert "no effect" in notes({"dit_layerwise_resident_layers": 3})


def test_a_knob_below_the_user_is_told_only_where_its_own_layer_placed_the_component() -> None:
    preset = {"residency.modes.dit": LAYERWISE, "residency.layerwise.dit.prefetch": 2}
    assert "no effect" not in notes({"component_residency.dit": RESIDENT}, preset=preset)
    assert "no effect" in notes(preset={"residency.modes.dit": RESIDENT, "residency.layerwise.dit.prefetch": 2})


def test_a_policy_without_resident_layers_has_no_effect() -> None:
    user = {"component_residency.dit": LAYERWISE, "layerwise.dit.policy": "leading"}
    assert "layerwise.dit.policy: no effect: no layer of transformer, transformer_2 stays resident" in notes(user)
    assert "no effect" not in notes(user | {"layerwise.dit.resident": 2})


def test_an_entry_beaten_everywhere_has_a_line() -> None:
    user = {"component_residency": {"dit": COMPONENT, "transformer": RESIDENT, "transformer_2": RESIDENT}}
    assert "component_residency.dit=component-offload: no effect on transformer, transformer_2: beaten by" in notes(
        user
    )


OFFLOADED = {"component_residency": {"dit": LAYERWISE, "vae": COMPONENT}, "layerwise.dit.prefetch": 2}


def test_on_cpu_everything_is_resident_with_one_line() -> None:
    result = run(OFFLOADED, machine=CPU)
    assert {placement.mode for placement in result.placements.values()} == {RESIDENT}
    assert len(result.notes) == 1
    assert result.notes[0].startswith("device cpu: offload modes run resident here: transformer (layerwise-offload)")
    first, asked = result.placements["transformer"].reasons[:2]
    assert (first.value, first.won, first.origin.layer) == (RESIDENT, True, "automatic")
    assert (asked.value, asked.won, asked.note) == (LAYERWISE, False, "overruled by device cpu")
    assert notes({}, machine=CPU) == ""


def test_on_cpu_a_mistake_is_still_a_mistake() -> None:
    assert "cannot do layerwise" in errors({"component_residency.vae": LAYERWISE}, NO_STACK, CPU)


def test_mps_is_one_device_where_component_offload_falls_back_with_a_line() -> None:
    result = run(OFFLOADED, machine=MPS)
    assert result.placements["transformer"].mode == LAYERWISE
    assert result.placements["vae"].mode == RESIDENT
    assert list(result.notes) == ["device mps: component-offload runs resident here: vae (component-offload)"]
    assert "mps is one device, not 2" in errors(machine=MachineFacts(kind="mps", num_devices=2))


def test_mps_pins_nothing_shards_nothing_and_prefetch_zero_is_legal() -> None:
    line = notes({"pin_cpu_memory": True, "use_fsdp_inference": True}, machine=MPS)
    assert "no effect: nothing is pinned on mps" in line
    assert "switched off: mps is one device" in line
    user = {"component_residency.vae": LAYERWISE, "layerwise.vae.prefetch": 0}
    for machine in (MPS, CUDA):
        assert run(user, machine=machine).placements["vae"].prefetch == Knob("0", (0,))


def test_fsdp_keeps_dits_resident_below_other_keys_of_the_user() -> None:
    below = {"pipeline.defaults.residency.all": COMPONENT}
    found = modes({"use_fsdp_inference": "true"}, pipeline=below)
    assert [found[name] for name in ("transformer", "transformer_2", "vae")] == [RESIDENT, RESIDENT, COMPONENT]
    assert modes({"use_fsdp_inference": False}, pipeline=below)["transformer"] == COMPONENT


@pytest.mark.parametrize("user", [{"component_residency.transformer": COMPONENT}, {"dit_cpu_offload": True}], ids=str)
def test_fsdp_beside_an_explicit_component_offload_is_refused_naming_both(user: dict[str, Any]) -> None:
    message = errors(user | {"use_fsdp_inference": True})
    assert f"{next(iter(user))}: 'transformer' is asked to be component-offload" in message
    assert "use_fsdp_inference (user.yaml: use_fsdp_inference) needs it resident" in message


def test_fsdp_is_decided_for_each_component() -> None:
    user = {"use_fsdp_inference": True, "component_residency.transformer": LAYERWISE}
    assert modes(user)["transformer"] == LAYERWISE
    assert modes(user)["transformer_2"] == RESIDENT
    assert "transformer is streamed, so use_fsdp_inference leaves it alone" in notes(user)


def quantized(backend: str) -> dict[str, Any]:
    return WAN | {"text_encoder": replace(WAN["text_encoder"], quantized=backend)}


def test_a_quantised_component_is_not_streamed_strict_for_the_user_with_a_line_below() -> None:
    components = quantized("bitsandbytes")
    message = errors({"component_residency.text_encoder": LAYERWISE}, components)
    assert "its weights are quantised by bitsandbytes" in message
    result = run(components=components, preset={"residency.modes.text_encoder": LAYERWISE})
    assert result.placements["text_encoder"].mode == COMPONENT
    assert "falls back to component-offload" in result.notes[0]
    assert modes({"component_residency.text_encoder": COMPONENT}, components)["text_encoder"] == COMPONENT


def test_modelopt_weights_are_streamed_but_not_moved_whole() -> None:
    components = quantized("modelopt_fp8")
    assert modes({"component_residency.text_encoder": LAYERWISE}, components)["text_encoder"] == LAYERWISE
    assert "cannot do component-offload" in errors({"component_residency.text_encoder": COMPONENT}, components)
    below = {"pipeline.defaults.residency.text_encoder": COMPONENT}
    assert modes(components=components, pipeline=below)["text_encoder"] == RESIDENT


def performance(mode: str) -> Entry:
    return Entry("performance_mode", mode, Origin("user", f"from the command line: performance_mode={mode}"))


LAYERED = {
    "preset": {"residency.modes.dit": LAYERWISE, "residency.layerwise.dit.prefetch": 3},
    "pipeline": {"pipeline.defaults.residency.vae": COMPONENT},
}
IMAGE_TOO = WAN | facts(image_encoder=(4,), audio_vae=(4,))
LISTED = {"dit_layerwise_modes": ["auto", "memory"], "auto_prefetch": 2}


def test_speed_is_resident_everywhere_and_replaces_two_layers_with_one_line() -> None:
    result = run(performance_mode=performance("speed"), **LAYERED)
    assert {placement.mode for placement in result.placements.values()} == {RESIDENT}
    assert len(result.notes) == 1
    assert "speed replaces the residency preset and the pipeline's own residency defaults" in result.notes[0]
    trail = [reason for reason in result.placements["transformer"].reasons if reason.origin.layer == "preset"]
    assert [reason.note for reason in trail if reason.subject == "mode"] == ["replaced by performance_mode=speed"]


@pytest.mark.parametrize("user", [{"dit_cpu_offload": True}, {"component_residency.dit": COMPONENT}], ids=str)
def test_explicit_offload_survives_speed_and_memory(user: dict[str, Any]) -> None:
    for mode in ("speed", "memory"):
        assert modes(user, performance_mode=performance(mode), hints=LISTED)["transformer"] == COMPONENT


def test_memory_on_cuda_streams_the_default_groups_and_moves_the_dits() -> None:
    found = modes(
        {}, IMAGE_TOO, MachineFacts(kind="cuda", total_bytes=16 * GIB), performance_mode=performance("memory")
    )
    assert found == {
        "text_encoder": LAYERWISE,
        "transformer": COMPONENT,
        "transformer_2": COMPONENT,
        "connectors": COMPONENT,
        "vae": LAYERWISE,
        "image_encoder": LAYERWISE,
        "audio_vae": RESIDENT,
    }


@pytest.mark.parametrize("kind", ["cuda", "sim"])
def test_memory_streams_the_dits_of_a_pipeline_that_lists_it(kind: str) -> None:
    machine = MachineFacts(kind=kind, total_bytes=80 * GIB, available_bytes=79 * GIB)
    hints = LISTED | {"keep_resident_min_available_gib": 60, "keep_resident_components": ["dit"]}
    result = run({}, IMAGE_TOO, machine, performance_mode=performance("memory"), hints=hints)
    found = {name: placement.mode for name, placement in result.placements.items()}
    streamed = {"text_encoder", "transformer", "transformer_2", "vae", "image_encoder"}
    assert {name for name, mode in found.items() if mode == LAYERWISE} == streamed
    assert found["connectors"] == COMPONENT
    assert result.placements["transformer"].prefetch == Knob("2", (2,))
    assert result.placements["vae"].prefetch == Knob("1", (1,))


def test_the_users_prefetch_beats_the_hint() -> None:
    user = {"dit_offload_prefetch_size": 5}
    result = run(user, performance_mode=performance("memory"), hints=LISTED)
    assert result.placements["transformer"].prefetch == Knob("5", (5,))


def test_memory_keeps_explicit_vae_residency_canonical_and_legacy() -> None:
    for user in ({"component_residency.vae": RESIDENT}, {"vae_cpu_offload": False}, {"vae_cpu_offload": "no"}):
        assert modes(user, performance_mode=performance("memory"))["vae"] == RESIDENT


def test_memory_with_fsdp_keeps_the_dits_and_streams_the_others() -> None:
    found = modes({"use_fsdp_inference": True}, performance_mode=performance("memory"), hints=LISTED)
    assert found == {
        "text_encoder": LAYERWISE,
        "transformer": RESIDENT,
        "transformer_2": RESIDENT,
        "connectors": RESIDENT,
        "vae": LAYERWISE,
    }


def test_memory_where_nothing_can_be_streamed_moves_components_whole() -> None:
    result = run({}, IMAGE_TOO, MPS, performance_mode=performance("memory"), hints=LISTED)
    assert {placement.mode for placement in result.placements.values()} == {RESIDENT}
    assert result.notes[1:] == (
        "device mps: component-offload runs resident here: text_encoder (component-offload), "
        "transformer (component-offload), transformer_2 (component-offload), connectors (component-offload), "
        "image_encoder (component-offload)",
    )


def test_memory_falls_back_for_a_component_without_layers() -> None:
    result = run(components=NO_STACK, performance_mode=performance("memory"))
    assert result.placements["vae"].mode == COMPONENT
    assert "vae cannot do layerwise-offload" in "\n".join(result.notes)


def test_manual_adjusts_nothing() -> None:
    assert set(modes(performance_mode=performance("manual")).values()) == {RESIDENT}
    found = run(performance_mode=performance("manual"), preset_name="balanced", **LAYERED)
    assert found.placements["transformer"].mode == LAYERWISE
    assert found.notes == ()


@pytest.mark.parametrize("mode", ["auto", "speed", "memory"])
def test_a_performance_mode_beside_a_named_preset_is_refused(mode: str) -> None:
    message = errors(performance_mode=performance(mode), preset_name="low_vram")
    assert f"'{mode}' replaces the preset, so it cannot stand beside residency=low_vram" in message


def test_a_performance_mode_that_there_is_not_is_refused() -> None:
    assert "did you mean 'memory'?" in errors(performance_mode=performance("memry"))
    assert "choose from manual, auto, speed, memory" in errors({"mode": True})


@pytest.mark.parametrize("chosen", [{"performance_mode": performance("auto")}, {"preset_name": "auto"}])
def test_auto_leaves_to_the_planner_what_the_user_does_not_say(chosen: dict[str, Any]) -> None:
    user = {"component_residency": {"vae": "component-offload"}, "layerwise": {"dit": {"prefetch": 2}}}
    found = run(user, **chosen, **LAYERED)
    transformer = found.placements["transformer"]
    assert found.planned
    assert found.placements["vae"].mode == "component-offload"
    assert (transformer.mode, transformer.resident, transformer.policy) == ("auto", None, None)
    assert transformer.prefetch is not None
    assert transformer.prefetch.written == "2"
    assert [note for note in found.notes if "no effect" in note] == []
    assert "the planner places what you do not" in found.notes[0]


def test_residency_auto_beside_another_performance_mode_is_refused() -> None:
    message = errors(performance_mode=performance("memory"), preset_name="auto")
    assert "'memory' contradicts residency=auto" in message


def test_the_alias_of_performance_mode_is_folded_with_a_line() -> None:
    assert "mode=speed: legacy key, read as performance_mode=speed" in notes({"mode": "speed"})
    assert "legacy" not in notes({"performance_mode": "speed"})


def test_speed_below_the_pipelines_own_threshold_has_a_line() -> None:
    hints = {"keep_resident_min_available_gib": 60, "keep_resident_components": ["dit", "vae"]}
    small, large = (MachineFacts(kind="cuda", available_bytes=gib * GIB) for gib in (24, 80))
    line = notes(machine=small, performance_mode=performance("speed"), hints=hints)
    assert "speed keeps transformer, transformer_2, vae resident; the pipeline advises 60 GiB" in line
    assert "advises" not in notes(machine=large, performance_mode=performance("speed"), hints=hints)


@pytest.mark.parametrize(
    ("hints", "part"),
    [
        ({"auto_prefetc": 2}, "pipeline.hints.auto_prefetc: unknown hint; did you mean 'auto_prefetch'?"),
        ({"auto_prefetch": "x"}, "pipeline.hints.auto_prefetch: 'x' is not an amount"),
        ({"keep_resident_min_available_gib": "60"}, "'60' is not a number of GiB"),
        ({"keep_resident_components": 3}, "3 is not a list of names"),
    ],
)
def test_a_bad_hint_is_refused_by_name(hints: dict[str, Any], part: str) -> None:
    assert part in errors(hints=hints)


def test_the_trail_tells_every_candidate_with_what_beat_it() -> None:
    user = {"component_residency.dit": COMPONENT, "dit_layerwise_offload": True}
    pipeline = {"pipeline.defaults.residency.transformer": RESIDENT}
    reasons = run(user, preset={"residency.modes.all": LAYERWISE}, pipeline=pipeline).placements["transformer"].reasons
    told = [(reason.key, reason.origin.layer, reason.won) for reason in reasons]
    assert told == [
        ("component_residency.dit", "user", True),
        ("dit_layerwise_offload", "user", False),
        ("residency.modes.all", "preset", False),
        ("pipeline.defaults.residency.transformer", "pipeline", False),
    ]
    winner = "component_residency.dit=component-offload (user.yaml: component_residency.dit)"
    assert {reason.note for reason in reasons[1:]} == {f"beaten by {winner}"}


def test_modes_without_knobs_have_none_and_tell_idle_knobs() -> None:
    placement = run({"layerwise.vae.prefetch": 2}).placements["vae"]
    assert (placement.prefetch, placement.resident, placement.policy, placement.lifetime) == (None,) * 4
    idle = next(reason for reason in placement.reasons if reason.subject == "prefetch")
    assert (idle.won, idle.note) == (False, "no effect: vae is resident")
