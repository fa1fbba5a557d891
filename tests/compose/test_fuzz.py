"""Random command lines and files: a `RunSpec` or a `ConfigError`, never anything else, and no file written."""

import os
from collections.abc import Callable
from functools import cache
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from framework.compose.composer import compose, compose_saved
from framework.compose.overrides import read_overrides
from framework.compose.yaml_file import parse_document
from framework.errors import ConfigError

KEYS = st.sampled_from(
    [
        "seed",
        "request.height",
        "request",
        "pipeline",
        "pipeline.stages.decode.after",
        "pipeline.components.vae.layers",
        "pipeline.defaults",
        "residency",
        "residency.modes.vae",
        "component_residency",
        "layerwise.dit.prefetch",
        "layerwise",
        "dit_cpu_offload",
        "cpu_offload_components",
        "numerics.quantize",
        "output.root",
        "requests",
        "hydra.x",
        "plugins",
        "performance_mode",
        "budget.device",
    ]
)
VALUES = st.text(st.sampled_from("abe01.-,=[]{}:'\"${}@~+ \\néß"), max_size=12) | st.sampled_from(
    ["null", "true", "off", "1e3", "[1,2]", "{a: 1}", "{dit: resident}", "resident", "low_vram", "wan2", "nan", "inf"]
)
SIGNS = st.sampled_from(["", "", "", "+", "++", "~"])
SETTINGS = settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


def lines_of(step: Callable[[], object]) -> list[str]:
    """The lines of a refusal, none when all is right; anything else fails the test."""
    try:
        step()
    except ConfigError as error:
        return [str(problem) for problem in error.problems]
    return []


@pytest.fixture(autouse=True)
def empty_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


@SETTINGS
@given(st.lists(st.tuples(SIGNS, KEYS, VALUES), min_size=1, max_size=4))
def test_a_random_command_line_composes_or_is_refused(words: list[tuple[str, str, str]]) -> None:
    assert all(lines_of(lambda: compose([f"{sign}{key}={value}" for sign, key, value in words])))
    assert os.listdir() == []


@settings(max_examples=400, deadline=None)
@given(st.lists(st.text(st.sampled_from("abseed=.+~'\"$[]{}(),:@\n é"), max_size=20), max_size=3))
def test_random_words_are_read_or_refused(words: list[str]) -> None:
    assert all(lines_of(lambda: read_overrides(words)))


LEAVES = st.none() | st.booleans() | st.integers(-3, 9) | st.floats() | VALUES
TREES = st.recursive(LEAVES, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(VALUES, inner, max_size=3))


@settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(KEYS, TREES, st.booleans())
def test_a_random_record_composes_or_is_refused(key: str, tree: object, whole: bool) -> None:
    config = dict(base())
    head, _, name = key.partition(".")
    config[head] = {**(config.get(head) or {}), name: tree} if name and not whole else tree
    assert all(lines_of(lambda: compose_saved(config, [])))


@settings(max_examples=300, deadline=None)
@given(st.text(st.sampled_from("seed: \n-[]{}&*!|>'\"#%,request0x\t"), max_size=50))
def test_a_random_file_is_data_or_a_line(text: str) -> None:
    lines = lines_of(lambda: parse_document(text, Path("x.yaml"), "x.yaml"))
    assert all(line.startswith("x.yaml:") for line in lines)


@cache
def base() -> dict[str, object]:
    return dict(compose([]).config)
