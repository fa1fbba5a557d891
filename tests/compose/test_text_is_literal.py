"""Prompt text arrives exactly as typed, by command line, YAML, request files and records: US-02, CF-07, SW-07."""

import json
from pathlib import Path

import pytest
from hydra.core.override_parser.overrides_parser import OverridesParser
from hypothesis import given, settings
from hypothesis import strategies as st
from omegaconf import OmegaConf
from prompt_texts import EXTRA, LONG, PROMPTS

from framework.compose.arguments import Flags, parse
from framework.compose.composer import compose, compose_saved
from framework.compose.overrides import read_overrides
from framework.compose.requests import read_requests
from framework.compose.text import quote, read_text_value
from framework.compose.yaml_file import parse_document
from framework.errors import ConfigError

WORST = "'\"\\${}[](),:=#@!~%&*?<>|;` \n\tabйß猫🐈"
ALL = (*PROMPTS, *EXTRA)


def test_the_list_has_the_fifty_four_prompts() -> None:
    assert len(PROMPTS) == 54
    assert len(LONG[:3000]) == 3000


@pytest.mark.parametrize("text", ALL)
def test_a_prompt_on_the_command_line_is_read_as_typed(text: str) -> None:
    words, _ = parse([f"prompt={text}"], ["multirun"])
    assert [override.value for override in read_overrides(words)] == [text]


def test_prompts_pass_the_whole_composition() -> None:
    text = " | ".join(ALL)
    spec = compose([f"prompt={text}", f"negative_prompt={text}", f"pipeline.defaults.request.prompt={text}"])
    assert (spec.requests[0].prompt, spec.requests[0].negative_prompt) == (text, text)
    assert spec.config["pipeline"]["defaults"]["request"]["prompt"] == text


@pytest.mark.parametrize("text", ["a cat, a dog", "choice(a,b)", "null", "${a.b}", "???", "1e3", ""])
def test_a_prompt_with_a_trap_passes_alone(text: str) -> None:
    assert compose([f"prompt={text}"]).requests[0].prompt == text


def test_a_comma_in_a_prompt_makes_no_second_run_under_multirun() -> None:
    words, flags = parse(["-m", "prompt=a cat, a dog"], ["multirun"])
    spec = compose(words, flags)
    assert [request.prompt for request in spec.requests] == ["a cat, a dog"]


@pytest.mark.parametrize("text", ALL)
def test_a_prompt_in_a_yaml_file_is_read_as_it_stands(text: str) -> None:
    document = parse_document(f"prompt: {json.dumps(text, ensure_ascii=False)}\n", Path("x.yaml"), "x.yaml")
    assert document.data["prompt"] == text


def test_prompts_of_a_file_are_neither_interpolated_nor_retyped(tmp_path: Path) -> None:
    (tmp_path / "experiment").mkdir()
    file = tmp_path / "experiment" / "mine.yaml"
    for written, text in {
        "${a.b}": "${a.b}",
        "'@file.txt'": "@file.txt",
        '"@@twice"': "@@twice",
        "1e3": "1e3",
        "yes": "yes",
        "2024_01": "2024_01",
        "16:9": "16:9",
        "'null'": "null",
        "'???'": "???",
        "|\n  two\n  lines": "two\nlines\n",
        '"${"': "${",
    }.items():
        file.write_text(f"# @package _global_\nprompt: {written}\n", encoding="utf-8")
        assert compose(["experiment=mine"], Flags(config_dir=(str(tmp_path),))).requests[0].prompt == text


def test_null_in_a_file_means_the_prompt_of_the_pipeline(tmp_path: Path) -> None:
    (tmp_path / "experiment").mkdir()
    (tmp_path / "experiment" / "mine.yaml").write_text("# @package _global_\nprompt: null\n")
    spec = compose(["experiment=mine"], Flags(config_dir=(str(tmp_path),)))
    assert spec.requests[0].prompt == "a seven moving right"


def test_at_reads_a_file_and_two_ats_are_one(tmp_path: Path) -> None:
    file = tmp_path / "prompt.txt"
    file.write_bytes("a cat, ${x}\nзима\n".encode())
    assert read_text_value(f"@{file}", "prompt") == "a cat, ${x}\nзима"
    assert read_text_value("@@home", "prompt") == "@home"


def test_a_prompt_file_that_is_not_utf8_is_refused_with_the_byte(tmp_path: Path) -> None:
    (tmp_path / "p.txt").write_bytes(b"caf\xe9")
    with pytest.raises(ConfigError, match=r"is not UTF-8 text \(byte 3\)"):
        compose([f"prompt=@{tmp_path / 'p.txt'}"])


def test_a_target_in_a_prompt_file_is_only_text(tmp_path: Path) -> None:
    (tmp_path / "p.txt").write_text("_target_: pathlib.Path.unlink")
    assert compose([f"prompt=@{tmp_path / 'p.txt'}"]).requests[0].prompt == "_target_: pathlib.Path.unlink"


def test_prompts_of_a_request_file_are_literal(tmp_path: Path) -> None:
    file = tmp_path / "requests.jsonl"
    file.write_text("\n".join(json.dumps({"prompt": text}) for text in ALL), encoding="utf-8")
    assert [request["prompt"] for request in read_requests(str(file)).values()] == list(ALL)
    spec = compose([f"requests=@{file}"])
    assert [request.prompt for request in spec.requests] == list(ALL)


def test_prompts_of_a_record_are_literal() -> None:
    text = " | ".join(ALL)
    saved = json.loads(json.dumps(compose([f"prompt={text}"]).config))
    assert compose_saved(saved, []).requests[0].prompt == text


@settings(max_examples=300, deadline=None)
@given(st.text(st.sampled_from(WORST), max_size=40) | st.text(max_size=40))
def test_any_text_is_read_as_typed(text: str) -> None:
    if not text.startswith("@"):
        assert read_overrides([f"prompt={text}"])[0].value == text


@settings(max_examples=100, deadline=None)
@given(st.text(st.sampled_from(WORST), max_size=30))
def test_quoting_survives_the_grammar_of_hydra_and_omegaconf(text: str) -> None:
    value = OverridesParser.create().parse_override(f"k={quote(text)}").value()
    if text != "???":  # OmegaConf's own mark for a missing value; texts of ours never reach it
        assert OmegaConf.create({"k": value}).k == text


def test_the_mark_of_a_missing_value_is_a_text_like_any_other() -> None:
    assert compose(["prompt=???"]).requests[0].prompt == "???"


@pytest.mark.parametrize("name", ["图.png", "a b,c.png", "it's.png", "x=1.png", "[a].png", "#1.png"])
def test_a_path_may_hold_what_the_grammar_cannot(name: str) -> None:
    assert compose([f"output.name={name}"]).output.name == name
