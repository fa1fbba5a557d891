"""`run residency=auto`: a line says the plan, the record has it beside what was measured, the frames are the same."""

import json
from pathlib import Path
from typing import Any

import pytest

from framework.cli import main

SIM = ("device=sim", "hardware=rtx_3060_12gb", "seed=3", "request.num_inference_steps=1", "--quiet")


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("cache")


def run(root: Path, name: str, *words: str) -> dict[str, Any]:
    assert main(["run", f"output.root={root}", f"output.name={name}", *SIM, *words]) == 0
    record: dict[str, Any] = json.loads((root / name / "record.json").read_text())
    return record


def test_auto_streams_inside_a_budget_and_makes_the_frames_of_resident(
    tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch, one_thread: None
) -> None:
    monkeypatch.setenv("FRAMEWORK_CACHE", str(cache))
    record = run(tmp_path, "auto", "residency=auto", "budget.device=9MiB")
    plan = record["plan"]
    assert {one["mode"] for one in plan["placements"]} > {"resident"}
    assert plan["forecast"]["peak_bytes"] <= 9 * 1024**2
    stages = record["requests"][0]["expected"].values()
    assert [one["measured_peak_bytes"] for one in stages] == [one["expected_peak_bytes"] for one in stages]
    seconds = [sum(one[f"{kind}_s"] for one in stages) for kind in ("measured", "expected")]
    assert seconds[0] == pytest.approx(seconds[1], rel=0.03)
    assert sum(note.startswith("plan for rtx_3060_12gb: ") for note in plan["notes"]) == 1
    log = (tmp_path / "auto" / "log.txt").read_text()
    assert log.count("plan for rtx_3060_12gb: ") == 1
    other = run(tmp_path, "resident", "residency=resident")
    hashes = [one["requests"][0]["outputs"][0]["frames_sha256"] for one in (record, other)]
    assert hashes[0] == hashes[1]
    assert "expected" in other["requests"][0], "the work is known by now, so every run is held against it"


@pytest.mark.slow
def test_what_fits_nowhere_ends_with_3_before_a_weight_is_read(
    tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("FRAMEWORK_CACHE", str(cache))
    words = ("residency=auto", "budget.device=300KiB", f"output.root={tmp_path}", "output.name=none")
    assert main(["run", *SIM, *words]) == 3
    assert "of device memory, and there is 0.3 MB by budget.device; what would fit: " in capsys.readouterr().err
    record = json.loads((tmp_path / "none" / "record.json").read_text())
    assert record["status"] == "refused"


@pytest.mark.slow
def test_a_planned_run_on_a_card_that_shrinks_takes_the_plans_next_best(
    tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch, one_thread: None
) -> None:
    from framework.platforms.sim.world import current
    from framework.runtime import events

    monkeypatch.setenv("FRAMEWORK_CACHE", str(cache))
    words = ("residency=auto", "request.num_inference_steps=4")
    whole = run(tmp_path, "whole", *words)
    plain = events.EventBus.emit

    def emit(bus: events.EventBus, event: events.Event) -> None:
        plain(bus, event)
        if isinstance(event, events.StepDone) and event.step == 2:
            ledger = current().devices[0].ledger
            ledger.capacity_bytes = int(ledger.peak_bytes * 0.6)

    monkeypatch.setattr(events.EventBus, "emit", emit)
    try:
        shrunk = run(tmp_path, "shrunk", *words, "recover.max_notches=8")
    finally:
        current().devices[0].ledger.capacity_bytes = current().capacity_bytes
    hashes = [one["requests"][0]["outputs"][0]["frames_sha256"] for one in (whole, shrunk)]
    assert hashes[0] == hashes[1]
    said = [note for note in shrunk["plan"]["notes"] if note.startswith("out of device memory")]
    assert "the plan's next-best" in said[0]
