"""Whole runs through the command line, in this process: what is written, repeated, refused and kept."""

import json
import os
import signal
import subprocess
import sys
import threading
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from framework.cli import main
from framework.outputs import video, writer
from framework.runtime import scheduler

QUICK = ["request.num_inference_steps=2", "device=cpu"]


def run(root: Path, *words: str) -> int:
    return main(["run", f"output.root={root}", *QUICK, *words])


def only_record(root: Path) -> tuple[Path, dict[str, Any]]:
    (folder,) = [path.parent for path in root.rglob("record.json")]
    return folder, json.loads((folder / "record.json").read_text(encoding="utf-8"))


def frame_hashes(record: dict[str, Any]) -> list[str]:
    return [output["frames_sha256"] for request in record["requests"] for output in request["outputs"]]


def test_a_run_leaves_video_sheet_record_and_log(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(tmp_path, "prompt=a three moving left", "seed=3") == 0
    folder, record = only_record(tmp_path)
    assert {"video.mp4", "sheet.png", "record.json", "log.txt"} <= {path.name for path in folder.iterdir()}
    assert record["status"] == "done"
    assert record["requests"][0]["prompt"] == "a three moving left"
    assert record["requests"][0]["seed"] == [3]
    assert str(folder / "video.mp4") in capsys.readouterr().out


def test_from_repeats_a_run_with_the_seed_that_was_drawn(tmp_path: Path) -> None:
    assert run(tmp_path / "first", "prompt=a nine") == 0
    folder, first = only_record(tmp_path / "first")
    assert main(["run", "--from", str(folder), f"output.root={tmp_path / 'second'}"]) == 0
    _, second = only_record(tmp_path / "second")
    assert second["requests"][0]["seed"] == first["requests"][0]["seed"]
    assert frame_hashes(second) == frame_hashes(first)
    assert any("equal the recorded" in note for note in second["plan"]["notes"])


def test_several_requests_share_one_process_and_get_files_of_their_own(tmp_path: Path) -> None:
    lines = [{"prompt": "a one", "seed": 1}, {"prompt": "a two, ${x} @y", "seed": 2}, {"prompt": "a one", "seed": 1}]
    requests = tmp_path / "requests.jsonl"
    requests.write_text("\n".join(map(json.dumps, lines)), encoding="utf-8")
    assert run(tmp_path / "out", f"requests=@{requests}") == 0
    _, record = only_record(tmp_path / "out")
    hashes = frame_hashes(record)
    assert [request["prompt"] for request in record["requests"]] == [line["prompt"] for line in lines]
    assert hashes[0] == hashes[-1] != hashes[2]


def test_outputs_with_a_list_of_seeds_equal_single_runs(tmp_path: Path) -> None:
    assert run(tmp_path / "both", "seed=[5,6]", "request.num_outputs=2") == 0
    folder, record = only_record(tmp_path / "both")
    assert record["requests"][0]["seed"] == [5, 6]
    assert len(list(folder.glob("*.mp4"))) == 2


def test_a_missing_checkpoint_is_one_line_and_leaves_no_folder(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(tmp_path, "pipeline=wan2", "residency=low_vram") == 2
    error = capsys.readouterr().err.strip()
    assert len(error.splitlines()) == 1
    assert "Wan-AI/Wan2.2-T2V-A14B-Diffusers" in error
    assert "pipeline.model.source=FOLDER" in error
    assert "GiB" in error
    assert not list(tmp_path.iterdir())


def test_an_unwritable_output_root_is_found_before_loading(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Case US-05, first half."""
    blocked = tmp_path / "file"
    blocked.write_text("not a folder")
    assert run(blocked) == 2
    assert "loading" not in capsys.readouterr().err


def test_a_writer_that_fails_keeps_the_frames(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Case US-05, second half: failed but kept, no partial video, exit code 4."""

    def fail(*arguments: Any) -> None:
        raise RuntimeError("the encoder gave up")

    working = video.find_video_writer
    monkeypatch.setattr(writer, "find_video_writer", lambda *options: replace(working(*options), write=fail))
    assert run(tmp_path) == 4
    folder, record = only_record(tmp_path)
    assert record["status"] == "failed"
    assert "kept" in record["error"]
    assert list(folder.glob("*.safetensors"))
    assert not list(folder.glob("*.mp4*"))
    assert "the encoder gave up" in capsys.readouterr().err


def test_an_interrupt_in_the_loop_ends_within_two_seconds(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Case US-06: exit code 130, a readable log, and the next run in this process is whole."""
    asked: list[float] = []

    def stop_at_the_first_step() -> None:
        while not list(tmp_path.rglob("log.txt")) or "step 1 of" not in next(tmp_path.rglob("log.txt")).read_text():
            time.sleep(0.01)
        asked.append(time.monotonic())
        os.kill(os.getpid(), signal.SIGINT)

    threading.Thread(target=stop_at_the_first_step, daemon=True).start()
    assert run(tmp_path, "request.num_inference_steps=500") == 130
    assert time.monotonic() - asked[0] < 2
    folder, record = only_record(tmp_path)
    assert record["status"] == "interrupted"
    assert "loaded transformer: resident" in (folder / "log.txt").read_text(encoding="utf-8")
    assert run(tmp_path / "again") == 0


def test_a_failing_stage_shows_its_own_error_on_a_narrow_console(tmp_path: Path) -> None:
    """Case US-03: the real error survives a code page that lacks the prompt's letters."""
    script = (
        "import sys\nfrom stages.decode import Decode\n"
        "def fail(self, ctx): raise RuntimeError('decode broke on \u6570\u5b57')\n"
        "Decode.run = fail\nfrom framework.cli import main\nsys.exit(main())\n"
    )
    words = ["run", f"output.root={tmp_path}", "output.name=\u7ed3\u679c", "prompt=\u6570\u5b57 \u4e03", *QUICK]
    environment = {**os.environ, "PYTHONIOENCODING": "cp1252", "PYTHONPATH": str(Path(__file__).parents[2])}
    done = subprocess.run([sys.executable, "-c", script, *words], capture_output=True, env=environment, check=False)
    assert done.returncode == 4
    assert b"decode broke on" in done.stderr
    assert b"Traceback" not in done.stderr
    log = (tmp_path / "\u7ed3\u679c" / "log.txt").read_text(encoding="utf-8")
    assert "\u6570\u5b57 \u4e03" in log
    assert "decode broke on \u6570\u5b57" in log


def test_a_non_finite_picture_is_a_failure_and_never_a_black_one(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    original = scheduler.run_requests

    def with_nan(spec: Any, graph: Any, store: Any, *rest: Any, **options: Any) -> Any:
        store.module("vae").decoder.conv_out.weight.data.flatten()[0] = float("nan")
        return original(spec, graph, store, *rest, **options)

    monkeypatch.setattr("framework.runtime.run.run_requests", with_nan)
    assert run(tmp_path) == 4
    assert "'decode'" in capsys.readouterr().err
    assert not list(tmp_path.rglob("*.mp4"))


def test_what_is_not_read_and_what_is_not_saved_is_said(tmp_path: Path) -> None:
    assert run(tmp_path, f"prompt={'a seven ' * 20}", "~pipeline.stages.export") == 0
    _, record = only_record(tmp_path)
    notes = "\n".join(record["plan"]["notes"])
    assert "is cut to max_sequence_length=16" in notes
    assert "no stage wrote a result" in notes
