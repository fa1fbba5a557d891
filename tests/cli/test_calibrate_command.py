"""`calibrate` from the command line: what it prints, keeps and refuses."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from framework.calibration import measure
from framework.calibration.store import path_of, read_calibration
from framework.cli import main
from framework.planning.machine import resolve_hardware


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FRAMEWORK_CACHE", str(tmp_path / "cache"))
    small = replace(measure.HOST, copy_bytes=1 << 20, device_bytes=1 << 20, rows=64, width=64, tokens=64, pixels=8)
    monkeypatch.setattr(measure, "HOST", replace(small, launches=20, disk_bytes=8 << 20, repeats=2))


def test_the_processor_is_measured_kept_and_planned_with(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["calibrate", "device=cpu"]) == 0
    shown = capsys.readouterr().out
    assert "matmul_tflops" in shown
    assert "hardware=auto plans with it" in shown
    kept = read_calibration("cpu")
    assert kept is not None
    planned_for = resolve_hardware({"name": "auto"}, "cpu")
    assert planned_for.profile.launch_us == kept.rates.launch_us
    assert kept.source in planned_for.notes
    path_of("cpu").write_text("{")
    assert any("holds no rates that can be read" in note for note in resolve_hardware({"name": "auto"}, "cpu").notes)


def test_rates_that_cannot_be_kept_are_told_all_the_same(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("FRAMEWORK_CACHE", str(tmp_path / "file"))
    assert main(["calibrate", "device=cpu"]) == 4
    shown = capsys.readouterr().out
    assert "launch_us" in shown
    assert "cannot keep the rates of cpu: " in shown


def test_a_simulated_machine_is_measured_to_its_profile_and_not_kept(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["calibrate", "device=sim", "hardware=rtx_3060_12gb", "hardware.h2d_pinned_gbps=6", "--json"]) == 0
    row = json.loads(capsys.readouterr().out)
    assert row["rates"]["h2d_pinned_gbps"] == {"assumed": 6, "found": pytest.approx(6)}
    assert all(one["found"] == pytest.approx(one["assumed"], rel=1e-4) for one in row["rates"].values())
    assert row["kept"] is None
    assert not (tmp_path / "cache").exists()


@pytest.mark.parametrize(
    ("words", "line"),
    [
        (["seed=3"], "seed: `calibrate` reads device and hardware only"),
        (["device=cpu", "hardware=rtx_4090"], "hardware: the machine at hand is measured"),
        (["--from-runs", "nowhere"], "--from-runs: 'nowhere' does not exist"),
        (["--from-runs", ".", "device=cpu"], "device=cpu: runs say themselves on which device they ran"),
    ],
)
def test_what_would_change_nothing_is_refused(
    words: list[str], line: str, capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["calibrate", *words]) == 2
    assert line in capsys.readouterr().err


def run_folder(folder: Path, key: str) -> None:
    forecast = {
        "hardware": "cpu",
        "device_key": key,
        "rates": {"conv_tflops": 0.3},
        "stages": [{"stage": "decode", "spent_s": {"conv_tflops": 1.0}}],
    }
    requests = [{"expected": {"decode": {"expected_s": 1.0, "measured_s": 2.0}}}]
    folder.mkdir(parents=True)
    record = {"schema": 1, "config": {}, "plan": {"forecast": forecast}, "requests": requests}
    (folder / "record.json").write_text(json.dumps(record))


def test_rates_are_learned_from_runs_beside_what_was_measured(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["calibrate", "device=cpu", "--quiet"]) == 0
    before = read_calibration("cpu")
    run_folder(tmp_path / "runs" / "a", "cpu")
    assert main(["calibrate", "--from-runs", str(tmp_path / "runs")]) == 0
    assert "off by 50% (median), with these rates they are by 0%" in capsys.readouterr().out
    after = read_calibration("cpu")
    assert before is not None
    assert after is not None
    assert after.rates.conv_tflops == pytest.approx(0.15)
    assert after.rates.launch_us == before.rates.launch_us
    assert after.source.startswith("rates learned from runs")


def test_runs_that_were_planned_by_a_name_are_told_and_not_kept(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run_folder(tmp_path / "runs" / "a", "")
    assert main(["calibrate", "--from-runs", str(tmp_path / "runs"), "--json"]) == 0
    row = json.loads(capsys.readouterr().out)
    assert (row["kept"], row["stages"]) == (None, 1)
