"""Whole runs that are looked at: trace, report and previews of one; US-05, US-06 and US-07 at the command line."""

import json
import os
import shutil
import signal
import threading
import time
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from framework.cli import main
from framework.report.document import FILE_NAME

ROOT = Path(__file__).parents[2]
PROMPT = 'a three </script> moving "left"'
STREAMED = ["component_residency.all=layerwise-offload", "component_residency.vae=component-offload"]


def run(root: Path, *words: str) -> int:
    return main(["run", f"output.root={root}", "request.num_inference_steps=4", *words])


def folder_of(root: Path) -> Path:
    (record,) = root.rglob("record.json")
    return record.parent


def record_of(root: Path) -> dict[str, Any]:
    record: dict[str, Any] = json.loads((folder_of(root) / "record.json").read_text(encoding="utf-8"))
    return record


@pytest.fixture(scope="module")
def watched(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a streamed run on `sim` that is traced, with previews and a budget."""
    root = tmp_path_factory.mktemp("watched")
    words = ["device=sim", "seed=3", f"prompt={PROMPT}", "budget={device: 64MiB}", "preview.every_steps=2", *STREAMED]
    assert run(root, "--quiet", "--trace", "log.level=debug", *words) == 0
    return folder_of(root)


def trace_events(folder: Path) -> tuple[list[dict[str, Any]], dict[int, str]]:
    events = json.loads((folder / "trace.json").read_text(encoding="utf-8"))["traceEvents"]
    names = {event["tid"]: event["args"]["name"] for event in events if event["name"] == "thread_name"}
    return [event for event in events if event["ph"] == "X"], names


def test_the_moves_of_a_trace_are_those_of_the_record(watched: Path) -> None:
    events, names = trace_events(watched)
    first = min(event["ts"] for event in events if event["name"] == "request 1")
    moved: dict[str, int] = {}
    for event in events:
        name = event["args"].get("component")
        if names[event["tid"]] == "copy" and name and event["ts"] >= first:
            moved[name] = moved.get(name, 0) + event["args"]["bytes"]
    told = json.loads((watched / "record.json").read_text(encoding="utf-8"))["requests"][0]["memory"]["moved_bytes"]
    assert moved == {name: sum(ways.values()) for name, ways in told.items()}
    assert moved.keys() == {"transformer", "transformer_2", "text_encoder", "vae"}


def test_a_trace_has_every_stage_step_and_layer_and_no_two_layers_at_once(watched: Path) -> None:
    events, names = trace_events(watched)
    stages = [event["name"] for event in events if names[event["tid"]] == "stages"]
    assert [name for name in stages if name in ("encode_prompt", "denoise", "decode", "export")] == [
        "encode_prompt", "denoise", "decode", "export",
    ]  # fmt: skip
    assert sum(name.startswith("step ") for name in stages) == 4
    compute = sorted((e["ts"], e["ts"] + e["dur"], e["name"]) for e in events if names[e["tid"]] == "compute")
    assert {f"transformer.blocks.{n}" for n in range(5)} <= {name for _, _, name in compute}
    assert all(one[1] <= other[0] + 0.002 for one, other in pairwise(compute))


def test_one_line_sums_the_trace_up(watched: Path) -> None:
    log = (watched / "log.txt").read_text(encoding="utf-8")
    (line,) = [line for line in log.splitlines() if "note: trace: " in line]
    assert "virtual" in line
    assert all(word in line for word in ("copied", "hidden", "stalls", "bus idle"))
    assert "use of transformer (high_noise) began" in log  # log.level=debug


def test_the_report_answers_from_this_very_run(watched: Path) -> None:
    content = (watched / FILE_NAME).read_text(encoding="utf-8")
    assert "<script" not in content
    assert "&lt;/script&gt;" in content
    for words in ("budget 64.0 MiB", "denoise", "transformer.blocks.0", "--trace", "embedded:digits", "Seed 3"):
        assert words in content, words
    assert content.count("data:video/mp4;base64,") == 1
    assert content.count("data:image/png;base64,") == 3  # the sheet and two previews


def test_previews_lie_in_their_folder(watched: Path) -> None:
    assert sorted(path.name for path in (watched / "previews").iterdir()) == [
        "denoise-step002.png", "denoise-step004.png",
    ]  # fmt: skip


def test_a_run_is_the_same_watched_or_not(watched: Path, tmp_path: Path) -> None:
    words = ["device=cpu", "seed=3", f"prompt={PROMPT}", "output.report=false"]
    assert run(tmp_path, "--quiet", *words) == 0
    hashes = [record["requests"][0]["outputs"][0]["frames_sha256"] for record in (
        record_of(tmp_path), json.loads((watched / "record.json").read_text(encoding="utf-8"))
    )]  # fmt: skip
    assert hashes[0] == hashes[1]
    assert not (folder_of(tmp_path) / FILE_NAME).exists()


def test_an_interrupt_while_loading_ends_within_two_seconds(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Case US-06, the loading half: a line for what goes on, exit code 130, and a report of what there is."""
    from framework.runtime.placed import Placed

    original = Placed.strategy

    def slow(self: Any, component: str, module: Any) -> Any:
        started = time.monotonic()
        threading.Timer(0.1, os.kill, (os.getpid(), signal.SIGINT)).start()
        while time.monotonic() < started + 5:
            time.sleep(0.01)
        return original(self, component, module)

    monkeypatch.setattr(Placed, "strategy", slow)
    started = time.monotonic()
    assert run(tmp_path, "device=cpu") == 130
    assert time.monotonic() - started < 5 + 2  # what is checked before loading included
    assert record_of(tmp_path)["status"] == "interrupted"
    assert "loading " in (folder_of(tmp_path) / "log.txt").read_text(encoding="utf-8")
    assert "interrupted" in (folder_of(tmp_path) / FILE_NAME).read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("component", "tensor", "stage", "where"),
    [("vae", "decoder.conv_out.weight", "decode", "vae"), ("transformer", "blocks.2", "denoise", "step 1 of 4")],
)
def test_a_weight_that_is_no_number_fails_the_run_and_names_where_it_began(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], component: str, tensor: str, stage: str, where: str
) -> None:
    """Case US-07: failed, with the first stage and step; no black picture, and the report says so too."""
    from safetensors.torch import load_file, save_file

    model = tmp_path / "model"
    shutil.copytree(ROOT / "conf" / "models" / "digits", model)
    (file,) = (model / component).glob("*.safetensors")
    weights = load_file(file)
    name = next(name for name in weights if name.startswith(tensor) and name.endswith("weight"))
    weights[name].view(-1)[0] = float("nan")
    save_file(weights, file)
    assert run(tmp_path / "out", f"pipeline.model.source={model}", "device=cpu") == 4
    error = capsys.readouterr().err
    assert f"'{stage}'" in error
    assert where in error
    record = record_of(tmp_path / "out")
    assert record["status"] == "failed"
    assert "not finite" in record["error"]
    folder = folder_of(tmp_path / "out")
    assert not [*folder.glob("*.mp4"), *folder.glob("*.png"), *folder.glob("*.webp")]
    assert "not finite" in (folder / FILE_NAME).read_text(encoding="utf-8")


def test_a_report_that_cannot_be_written_ends_no_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Case US-05, the same for what is beside the results."""

    def fail(data: Any) -> Path:
        raise OSError("disk full")

    monkeypatch.setattr("framework.report.watching.write_report", fail)
    assert run(tmp_path, "device=cpu", "--quiet") == 0
    assert "no report: OSError: disk full" in (folder_of(tmp_path) / "log.txt").read_text(encoding="utf-8")
    assert list(folder_of(tmp_path).glob("*.mp4"))
