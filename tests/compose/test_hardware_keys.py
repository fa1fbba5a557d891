"""A hardware profile that nobody could reckon with is refused by name, before anybody does."""

from pathlib import Path

import pytest

from framework.cli import main
from framework.paths import CONF

CARD = "hardware=rtx_3060_12gb"


@pytest.mark.parametrize(
    ("word", "message"),
    [
        ("hardware.disk_gbps=0", "hardware.disk_gbps: must be above 0, got 0"),
        ("hardware.efficiency.matmul=0", "hardware.efficiency.matmul: must be above 0, got 0"),
        ("hardware.efficiency.conv=null", "hardware.efficiency.conv: profile 'rtx_3060_12gb' needs a value"),
        ("hardware.memory_gib=null", "hardware.memory_gib: profile 'rtx_3060_12gb' needs a value"),
        (
            "hardware.memory_gib=0.5",
            "hardware.memory_gib: 0.5 GiB leave nothing beside hardware.reserve_gib, which is 0.8 GiB; "
            "give more memory or set a smaller reserve",
        ),
    ],
)
def test_figures_that_mean_nothing_are_refused(word: str, message: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["plan", CARD, word]) == 2
    assert capsys.readouterr().err == f"(from the command line: {word}): {message}\n"


def test_a_profile_of_ones_own_that_lacks_a_figure_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = (CONF / "hardware" / "rtx_3060_12gb.yaml").read_text(encoding="utf-8")
    (tmp_path / "hardware").mkdir()
    kept = [line for line in text.splitlines(keepends=True) if not line.startswith("memory_gbps:")]
    (tmp_path / "hardware" / "mine.yaml").write_text("".join(kept), encoding="utf-8")
    assert main(["plan", "--config-dir", str(tmp_path), "hardware=mine"]) == 2
    err = capsys.readouterr().err
    assert "mine.yaml:5: hardware.memory_gbps: profile 'rtx_3060_12gb' needs a value" in err


def test_what_no_card_must_have_may_be_left_out(capsys: pytest.CaptureFixture[str]) -> None:
    words = ["hardware.fp8_tflops=null", "hardware.launch_us=0", "hardware.reserve_gib=0", "hardware.memory_gib=0.1"]
    assert main(["validate", CARD, *words]) == 0
    assert capsys.readouterr().err == ""
