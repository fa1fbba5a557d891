"""Sweeps of the embedded model with real workers: results as those of single runs, and 24 jobs of every kind."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from framework.cli import main

TROUBLE = """# @package _global_
pipeline:
  stages:
    trouble: {kind: trouble}
    encode_prompt: {after: [trouble]}
request: {num_inference_steps: 1}
"""
States = Callable[[], dict[int, dict[str, Any]]]


def record(folder: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((folder / "record.json").read_text(encoding="utf-8"))
    return found


def frames(found: dict[str, Any]) -> list[str]:
    return [output["frames_sha256"] for request in found["requests"] for output in request["outputs"]]


def test_a_warm_worker_gives_what_a_single_run_gives(tmp_path: Path, sweep: Callable[..., int], states: States) -> None:
    """Weights stay for the next job, which has them where its placement says, and nothing of it shows."""
    words = ["request.num_inference_steps=2", "device=sim"]
    axes = ["residency=none,low_vram", "prompt=choice('a three, moving left',a nine)"]
    assert sweep(*words, *axes, "seed=4", "--devices", "sim:1") == 0
    folders = [tmp_path / "s" / state["name"] for state in states().values()]
    notes = [record(folder)["plan"]["notes"] for folder in folders]
    assert sum(any("those of the run before" in note for note in own) for own in notes) == 3  # loaded once
    modes = [
        {entry["component"]: entry["mode"] for entry in record(folder)["plan"]["placements"]} for folder in folders
    ]
    assert modes[0] == modes[1] != modes[2] == modes[3]
    own = tmp_path / "own"
    assert main(["run", *words, f"output.root={own}", "residency=low_vram", "prompt=a nine", "seed=4", "--quiet"]) == 0
    (single,) = own.iterdir()
    assert frames(record(single)) == frames(record(folders[3])) == frames(record(folders[1]))
    assert frames(record(folders[0])) == frames(record(folders[2])) != frames(record(single))


@pytest.mark.slow
def test_a_job_goes_on_from_what_its_last_attempt_kept(
    tmp_path: Path, sweep: Callable[..., int], states: States
) -> None:
    assert sweep("request.num_inference_steps=2", "seed=4,5", "--devices", "none:1") == 0
    folder = tmp_path / "s" / states()[1]["name"]
    before = frames(record(folder))
    (folder / "video.mp4").unlink()
    assert sweep() == 0
    log = (folder / "log.txt").read_text(encoding="utf-8")
    assert "request 1 goes on with stage 'decode'" in log
    assert frames(record(folder)) == before
    assert [len(state["attempts"]) for state in states().values()] == [2, 1]


@pytest.mark.slow
@pytest.mark.parametrize("devices", ["none:4", "sim:4"])
def test_24_jobs_of_every_kind(
    devices: str, tmp_path: Path, sweep: Callable[..., int], states: States, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Issue: good ones finish, the summary is right, a resume runs only what is missing, twice."""
    monkeypatch.setenv("FRAMEWORK_PLUGINS", "trouble")
    conf = tmp_path / "conf" / "experiment"
    conf.mkdir(parents=True)
    (conf / "trouble.yaml").write_text(TROUBLE)
    prompts = [*(f"good {number}" for number in range(18)), "raise", "raise again", "exit", "kill", "hang", "memory"]
    words = [f"prompt=choice({','.join(prompts)})", "seed=3", "sweep.job_limit_s=120"]
    start = ["experiment=trouble", "--config-dir", str(conf.parent), "--devices", devices]
    assert sweep(*words, *start) == 4
    expected = ["done"] * 18 + ["failed"] * 6
    assert [state["status"] for state in states().values()] == expected
    for _ in range(2):
        before = [len(state["attempts"]) for state in states().values()]
        assert sweep() == 4
        after = [len(state["attempts"]) for state in states().values()]
        assert after == [count + (status == "failed") for count, status in zip(before, expected, strict=True)]
        assert [state["status"] for state in states().values()] == expected
