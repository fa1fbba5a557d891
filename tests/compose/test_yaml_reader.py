"""The strict reader: what plain scalars mean, where keys stand, and what is bounded (SE-04)."""

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from framework.compose.yaml_file import Document, dotted, parse_document, read_document, show_path
from framework.errors import ConfigError
from framework.paths import CONF


def read(text: str) -> Document:
    return parse_document(text, Path("x.yaml"), "x.yaml")


@pytest.mark.parametrize(
    ("written", "value"),
    [
        ("16:9", "16:9"),
        ("0755", "0755"),
        ("1_000", "1_000"),
        ("2024_01", "2024_01"),
        ("2026-01-01", "2026-01-01"),
        ("1e3", 1000.0),
        ("1E234", 1e234),
        ("-3", -3),
        ("0.5", 0.5),
        (".5", 0.5),
        ("1.", 1.0),
        ("0", 0),
        ("off", False),
        ("No", False),
        ("on", True),
        ("true", True),
        ("null", None),
        ("~", None),
        ("", None),
        ("'null'", "null"),
        ('"1"', "1"),
        ("y", "y"),
        ("0x10", "0x10"),
        ("a b", "a b"),
    ],
)
def test_a_plain_scalar_means_what_people_read(written: str, value: Any) -> None:
    found = read(f"key: {written}\n").data["key"]
    assert (found, type(found)) == (value, type(value))


def test_infinity_and_nan_are_numbers() -> None:
    data = read("a: .inf\nb: -.INF\nc: .NaN\n").data
    assert (data["a"], data["b"], data["c"] != data["c"]) == (float("inf"), float("-inf"), True)


def test_every_key_and_item_has_its_line() -> None:
    document = read("# head\na:\n  b: 1\n  c:\n    - x\n    - y: 2\n")
    assert document.lines[("a", "b")] == 3
    assert document.lines[("a", "c", 1, "y")] == 6
    assert document.where(("a", "c", 5, "z")) == "x.yaml:4"


def test_anchors_and_merge_keys_work() -> None:
    data = read("base: &b {x: 1, y: 2}\nmine:\n  <<: *b\n  y: 3\nboth:\n  <<: [{y: 9}, *b]\n").data
    assert data["mine"] == {"x": 1, "y": 3}
    assert data["both"] == {"y": 9, "x": 1}


def test_a_package_is_read_from_any_of_the_first_comments() -> None:
    assert read("# hello\n#  @package _global_\nseed: 1\n").package == "_global_"
    assert read("seed: 1\n# @package _global_\n").package is None


def test_an_empty_file_holds_nothing() -> None:
    assert read("").data is None
    assert read("# only words\n").data is None


def test_a_byte_order_mark_is_no_part_of_the_first_key(tmp_path: Path) -> None:
    (tmp_path / "x.yaml").write_bytes(b"\xef\xbb\xbfseed: 1\n")
    assert read_document(tmp_path / "x.yaml").data == {"seed": 1}


def test_aliases_are_bounded_but_allowed() -> None:
    assert read("a: &a [1, 2]\nb: [*a, *a]\n").data["b"] == [[1, 2], [1, 2]]


def test_paths_are_shown_short(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert show_path(CONF / "config.yaml") == "conf/config.yaml"
    assert show_path(tmp_path / "a" / "b.yaml") == "a/b.yaml"


def test_key_paths_are_written_with_dots_and_brackets() -> None:
    assert dotted(("a", "b", 0, "c")) == "a.b[0].c"


@settings(max_examples=400, deadline=None)
@given(st.text(st.sampled_from("ab:-[]{}&*!<>|'\"# \n\t,?%@`0.é"), max_size=60))
def test_no_text_gives_anything_but_data_or_a_line(text: str) -> None:
    problems = []
    try:
        read(text)
    except ConfigError as error:
        problems = [str(problem) for problem in error.problems]
    assert all(problem.startswith("x.yaml:") for problem in problems)
