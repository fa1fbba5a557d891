"""Layers stay apart, the user beats everything, and every value knows where it came from."""

from pathlib import Path

import pytest

from framework.compose.arguments import Flags
from framework.compose.composer import compose, compose_data
from framework.compose.hydra_compose import compose_files
from framework.compose.layers import build_sources, component_facts
from framework.compose.provenance import split_key
from framework.compose.sources import ComponentFacts
from framework.errors import ConfigError
from framework.graph import build_graph
from framework.spec import RunSpec


@pytest.fixture
def user_conf(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    for group in ("experiment", "residency", "pipeline", "output"):
        (tmp_path / "mine" / group).mkdir(parents=True)
    return tmp_path / "mine"


def compose_mine(folder: Path, *words: str) -> RunSpec:
    return compose(words, Flags(config_dir=(str(folder),)))


def test_every_layer_is_told_by_the_file_that_said_it() -> None:
    spec = compose(["pipeline=wan2", "residency=low_vram", "seed=3", "experiment=digits_grid"])
    layers = {key: origin.layer for key, origin in spec.provenance.items()}
    assert layers["seed"] == "user"
    assert layers["prompt"] == "user"
    assert layers["residency.modes.dit"] == "preset"
    assert layers["pipeline.defaults.residency.dit"] == "pipeline"
    assert layers["output.root"] == "default"
    assert spec.provenance["residency.modes.dit"].where.startswith("conf/residency/low_vram.yaml:")
    assert spec.provenance["seed"].where == "from the command line: seed=3"


def test_provenance_is_complete() -> None:
    spec = compose(["pipeline=wan2", "residency=balanced", "component_residency.vae=resident"])
    unsaid = []

    def walk(value: object, key: str) -> None:
        if isinstance(value, dict) and value:
            for name, inner in value.items():
                walk(inner, f"{key}.{name}" if key else name)
        elif value is not None and key not in spec.provenance:
            unsaid.append(key)

    walk(dict(spec.config), "")
    assert unsaid == []


def test_a_user_choice_beats_the_preset_whatever_the_selector() -> None:
    spec = compose(["pipeline=wan2", "residency=low_vram", "component_residency.all=resident"])
    assert {placement.mode for placement in spec.placements.values()} == {"resident"}


@pytest.mark.parametrize("key", ["residency.modes.all", "pipeline.defaults.residency.all"])
def test_an_override_of_a_preset_or_default_counts_as_the_users(key: str) -> None:
    spec = compose(["pipeline=wan2", "residency=low_vram", f"{key}=resident"])
    assert spec.placements["transformer"].mode == "resident"
    assert spec.placements["transformer"].reasons[0].origin.layer == "user"


def test_the_preset_stays_in_the_trail_below_an_override_of_its_key() -> None:
    sources = build_sources(*_data("residency=low_vram", "residency.modes.dit=resident"))
    assert [(e.key, e.value) for e in sources.user] == [("residency.modes.dit", "resident")]
    assert ("residency.modes.dit", "layerwise-offload") in [(e.key, e.value) for e in sources.preset]


def test_a_null_of_the_user_takes_an_entry_of_the_preset_away() -> None:
    sources = build_sources(*_data("residency=low_vram", "residency.modes.dit=null"))
    assert "residency.modes.dit" not in {entry.key for entry in (*sources.user, *sources.preset)}


def test_an_experiment_is_the_users(user_conf: Path) -> None:
    (user_conf / "experiment" / "mine.yaml").write_text(
        "# @package _global_\nresidency:\n  modes:\n    vae: resident\n"
    )
    spec = compose_mine(user_conf, "experiment=mine", "residency=low_vram")
    winner = next(reason for reason in spec.placements["vae"].reasons if reason.won)
    assert (winner.origin.layer, winner.origin.where) == ("user", "mine/experiment/mine.yaml:4")


def test_pipeline_defaults_of_an_experiment_go_over_the_pipelines_own_and_leave_the_rest(user_conf: Path) -> None:
    text = "# @package _global_\npipeline: {defaults: {request: {height: 64}, residency: {vae: component-offload}}}\n"
    (user_conf / "experiment" / "taller.yaml").write_text(text)
    spec, plain = compose_mine(user_conf, "experiment=taller"), compose([])
    (request,), (usual,) = spec.requests, plain.requests
    assert (request.height, request.width, request.prompt) == (64, usual.width, usual.prompt)
    assert spec.placements["vae"].mode == "component-offload"
    assert spec.placements["transformer"].mode == plain.placements["transformer"].mode == "resident"


def test_a_preset_of_the_users_is_still_a_preset(user_conf: Path) -> None:
    (user_conf / "residency" / "mine.yaml").write_text("name: mine\nmodes:\n  vae: component-offload\n")
    spec = compose_mine(user_conf, "residency=mine")
    winner = next(reason for reason in spec.placements["vae"].reasons if reason.won)
    assert (winner.origin.layer, winner.value) == ("preset", "component-offload")


def test_a_pipeline_of_the_users_starts_from_ours(user_conf: Path) -> None:
    (user_conf / "pipeline" / "mine.yaml").write_text("defaults: [digits]\nname: mine\nhints:\n  auto_prefetch: 2\n")
    spec = compose_mine(user_conf, "pipeline=mine")
    assert (spec.pipeline.name, spec.pipeline.hints["auto_prefetch"]) == ("mine", 2)
    assert spec.provenance["pipeline.name"].where == "mine/pipeline/mine.yaml:2"
    assert spec.provenance["pipeline.family"].where.startswith("conf/pipeline/digits.yaml:")


def test_a_file_of_the_users_wins_over_a_packaged_one_of_the_same_name(user_conf: Path) -> None:
    (user_conf / "output" / "default.yaml").write_text("root: elsewhere\n")
    spec = compose_mine(user_conf)
    assert str(spec.output.root) == "elsewhere"
    assert spec.provenance["output.root"].layer == "user"


@pytest.mark.parametrize("written", ["false", '"false"', "off", '"off"', '"0"', "no"])
def test_every_spelling_of_false_is_an_explicit_choice(user_conf: Path, written: str) -> None:
    (user_conf / "experiment" / "mine.yaml").write_text(f"# @package _global_\nvae_cpu_offload: {written}\n")
    spec = compose_mine(user_conf, "experiment=mine", "residency=low_vram")
    assert spec.placements["vae"].mode == "resident"
    assert spec.provenance["vae_cpu_offload"].where == "mine/experiment/mine.yaml:2"


def test_a_flag_from_an_environment_variable_is_not_true_for_being_text(
    user_conf: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MINE", "false")
    (user_conf / "experiment" / "mine.yaml").write_text("# @package _global_\nvae_cpu_offload: ${oc.env:MINE}\n")
    assert compose_mine(user_conf, "experiment=mine", "residency=low_vram").placements["vae"].mode == "resident"


def test_off_no_and_false_are_one_value_where_off_is_a_value(user_conf: Path) -> None:
    for written in ("off", "no", "false", '"off"', "No"):
        (user_conf / "experiment" / "mine.yaml").write_text(f"# @package _global_\nnumerics:\n  compile: {written}\n")
        assert compose_mine(user_conf, "experiment=mine").numerics.compile == "off"


def test_a_value_equal_to_the_default_still_counts_as_said() -> None:
    assert compose(["request.height=32"]).provenance["request.height"].layer == "user"


def test_interpolations_between_keys_work_in_files_and_on_the_command_line(user_conf: Path) -> None:
    (user_conf / "experiment" / "mine.yaml").write_text(
        "# @package _global_\nrequest:\n  height: 64\n  width: ${request.height}\n"
        "  num_frames: ${pipeline.defaults.request.num_frames}\n"
    )
    request = compose_mine(user_conf, "experiment=mine", "request.num_inference_steps=${request.height}").requests[0]
    assert (request.width, request.num_frames, request.num_inference_steps) == (64, 9, 64)


def test_open_maps_take_new_names_without_a_sign() -> None:
    spec = compose(["pipeline.components.vae.dtype=bfloat16", "pipeline.components.helper.optional=true"])
    assert spec.pipeline.components["vae"].dtype == "bfloat16"
    assert spec.pipeline.components["helper"].optional


def test_a_key_can_be_removed() -> None:
    spec = compose(["~pipeline.stages.export"])
    assert "export" not in spec.pipeline.stages


def test_dotted_keys_split_into_names_and_indexes() -> None:
    assert split_key("stages.a.after[0]") == ("stages", "a", "after", 0)


def _data(*words: str):  # type: ignore[no-untyped-def]
    composed = compose_data(words)
    return composed.data, composed.provenance


FIVE_B = "pipeline=wan2_ti2v_5b"


def facts_of(*words: str, quantized: dict[str, str] | None = None) -> dict[str, ComponentFacts]:
    pipeline = compose([FIVE_B, *words]).pipeline
    return component_facts(pipeline, build_graph(pipeline), quantized)


def test_the_resolver_is_told_who_quantises_a_component() -> None:
    facts = facts_of(quantized={"transformer": "gguf", "text_encoder": "torchao-int8"})
    assert facts["transformer"].quantized == "gguf"
    assert facts["text_encoder"].quantized == "torchao-int8"
    assert facts["vae"].quantized is None
    assert facts_of()["transformer"].quantized is None


def test_an_empty_list_of_layers_says_that_there_are_none_and_silence_says_nothing() -> None:
    assert facts_of()["vae"].stack_lengths is None
    assert facts_of("pipeline.components.vae.layers=[]")["vae"].stack_lengths == ()


def test_a_component_stated_to_have_no_layers_is_not_streamed() -> None:
    words = [FIVE_B, "pipeline.components.vae.layers=[]"]
    with pytest.raises(ConfigError, match="'vae' cannot do layerwise-offload: it has no list of layers to stream"):
        compose([*words, "component_residency.vae=layerwise-offload"])
    spec = compose([*words, "performance_mode=memory"])
    assert spec.placements["vae"].mode == "component-offload"
    assert any("vae cannot do layerwise-offload" in note for note in spec.notes)


def test_the_order_of_files_is_the_same_by_the_public_way_of_hydra(monkeypatch: pytest.MonkeyPatch) -> None:
    words = ["pipeline=wan2", "residency=low_vram", "experiment=wan2_low_vram"]
    watched = compose_files(words).layers
    monkeypatch.setattr("framework.compose.hydra_compose._watch_merging", lambda loader: [])
    assert len(watched) == 7
    assert [(layer.config_path, layer.package) for layer in compose_files(words).layers] == [
        (layer.config_path, layer.package) for layer in watched
    ]
