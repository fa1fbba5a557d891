"""A key of residency given twice is refused where the values differ; modes merge alike however they are written."""

from pathlib import Path

import pytest

from framework.compose.arguments import Flags
from framework.compose.composer import compose, compose_saved
from framework.errors import ConfigError


@pytest.mark.parametrize(
    "words",
    [
        ("vae_cpu_offload=true", "vae_cpu_offload=false"),
        ("component_residency.vae=resident", "component_residency.vae=component-offload"),
        ("component_residency=vae=resident", "component_residency={vae: component-offload}"),
        ("component_residency.vae=resident", "component_residency=vae=component-offload"),
        ("layerwise.dit.prefetch=1", "layerwise={dit: {prefetch: 2}}"),
        ("residency.modes.vae=resident", "residency.modes.vae=component-offload"),
        ("performance_mode=speed", "performance_mode=memory"),
    ],
)
def test_two_values_for_one_key_of_residency_are_refused_with_both_places(words: tuple[str, str]) -> None:
    for again in (lambda: compose(words), lambda: compose_saved(compose([]).config, words)):
        with pytest.raises(ConfigError) as caught:
            again()
        (problem,) = caught.value.problems
        assert problem.where == f"from the command line: {words[1]}"
        assert f"(from the command line: {words[0]})" in problem.reason
        assert problem.hint == "keep one of them"


@pytest.mark.parametrize(
    ("word", "key"),
    [
        ("layerwise={dit: {prefetch: 1, prefetch: 2}}", "layerwise.dit.prefetch"),
        ("layerwise={dit:{prefetch:1,prefetch:2}}", "layerwise.dit.prefetch"),
        ("component_residency={vae: resident, vae: component-offload}", "component_residency.vae"),
        ("request={height: 64, height: 96}", "request.height"),
    ],
)
def test_a_key_twice_in_one_map_is_refused(word: str, key: str) -> None:
    with pytest.raises(ConfigError) as caught:
        compose([word])
    assert str(caught.value) == f"(from the command line: {word}): {key}: duplicate key"


def test_the_same_value_twice_and_a_value_taken_back_are_no_contradiction() -> None:
    assert compose(["vae_cpu_offload=true", "vae_cpu_offload=true"]).placements["vae"].mode == "component-offload"
    assert compose(["vae_cpu_offload=true", "vae_cpu_offload=null"]).placements == compose([]).placements


def test_the_last_of_two_ordinary_values_counts_as_in_hydra() -> None:
    assert compose(["seed=1", "seed=2"]).requests[0].seeds == (2,)


IN_FILE = ("{vae: component-offload}", "vae=component-offload", "[vae=component-offload]", "' VAE = Component_Offload'")
ON_TOP = (
    "component_residency={text_encoder: component-offload}",
    "component_residency=text_encoder=component-offload",
    "component_residency=[text_encoder=component-offload]",
    "component_residency=['text_encoder=component-offload']",
    'component_residency=["text_encoder=component-offload"]',
    "component_residency.text_encoder=component-offload",
)


@pytest.mark.parametrize("word", ON_TOP)
@pytest.mark.parametrize("written", IN_FILE)
def test_modes_of_a_file_stay_below_those_of_the_command_line(written: str, word: str, tmp_path: Path) -> None:
    (tmp_path / "experiment").mkdir()
    file = tmp_path / "experiment" / "mine.yaml"
    file.write_text(f"# @package _global_\ncomponent_residency: {written}\n")
    placements = compose(["experiment=mine", word], Flags(config_dir=(str(tmp_path),))).placements
    assert (placements["vae"].mode, placements["text_encoder"].mode) == ("component-offload", "component-offload")
    assert [reason.origin.where for reason in placements["vae"].reasons if reason.subject == "mode" and reason.won] == [
        f"{file}:2"
    ]


def test_not_a_number_is_told_as_such_and_does_not_contradict_itself() -> None:
    with pytest.raises(ConfigError) as caught:
        compose(["layerwise.dit.prefetch=nan"])
    (problem,) = caught.value.problems
    assert problem.reason == "must be a finite number, got nan"
