"""The embedded pipeline from the command line on a simulated card: every preset and mode makes the same frames."""

import json
from pathlib import Path
from typing import Any

import pytest

from framework.cli import main

SIM = ("device=sim", "hardware=rtx_3060_12gb")
PLANS = {
    "low_vram": ("residency=low_vram",),
    "balanced": ("residency=balanced",),
    "minimal": ("residency=minimal",),
    "whole": ("component_residency.all=component-offload",),
    "streamed": ("component_residency.all=layerwise-offload", "layerwise.dit.prefetch=2", "layerwise.dit.resident=2"),
    "kept": (
        "component_residency.dit=layerwise-offload",
        "layerwise.dit.resident=all",
        "layerwise.dit.lifetime=retained",
    ),
}


def run(root: Path, name: str, *words: str) -> dict[str, Any]:
    common = (f"output.root={root}", f"output.name={name}", "seed=3", "request.num_inference_steps=4", "--quiet")
    assert main(["run", *common, *words]) == 0
    record: dict[str, Any] = json.loads((root / name / "record.json").read_text())
    return record


@pytest.fixture(scope="module")
def resident(tmp_path_factory: pytest.TempPathFactory, one_thread: None) -> dict[str, Any]:
    return run(tmp_path_factory.mktemp("resident"), "resident", *SIM, "residency=resident")


def frames_hash(record: dict[str, Any]) -> str:
    found: str = record["requests"][0]["outputs"][0]["frames_sha256"]
    return found


@pytest.mark.parametrize("name", PLANS)
def test_a_plan_makes_the_frames_of_resident(name: str, resident: dict[str, Any], tmp_path: Path) -> None:
    record = run(tmp_path, name, *SIM, *PLANS[name])
    assert frames_hash(record) == frames_hash(resident)
    memory = record["requests"][0]["memory"]
    offloaded = {p["component"] for p in record["plan"]["placements"] if p.get("mode", "resident") != "resident"}
    assert set(memory["moved_bytes"]) == offloaded
    assert all(moved["h2d"] > 0 for moved in memory["moved_bytes"].values())
    assert memory["device_peak_bytes"] > 0


def test_resident_moves_no_weights_in_a_request(resident: dict[str, Any]) -> None:
    assert resident["requests"][0]["memory"]["moved_bytes"] == {}
    assert resident["plan"]["device"] == "sim:0"


def test_the_processor_makes_the_same_frames(resident: dict[str, Any], tmp_path: Path) -> None:
    assert frames_hash(run(tmp_path, "cpu", "device=cpu")) == frames_hash(resident)


def test_the_chosen_hardware_is_the_one_that_is_simulated(tmp_path: Path) -> None:
    from framework.platforms.sim.world import current

    run(tmp_path, "h100", "device=sim", "hardware=h100", "request.num_inference_steps=1")
    assert current().profile.name == "h100"
