"""`run --resume`, `--until` and `--from-stage` as whole runs: what goes on, what is refused, what is said."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from framework.cli import main
from framework.outputs.lock import FolderLock
from framework.runtime import events

QUICK = ["request.num_inference_steps=3", "device=cpu", "seed=3", "prompt=a three", "output.sheet=false"]
QUIET = ["output.report=false", "checkpoint.every_steps=1"]


def run(root: Path, name: str, *more: str) -> int:
    return main(["run", "--quiet", f"output.root={root}", f"output.name={name}", *QUICK, *QUIET, *more])


def record(folder: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((folder / "record.json").read_text(encoding="utf-8"))
    return found


def frames(folder: Path) -> list[str]:
    return [output["frames_sha256"] for request in record(folder)["requests"] for output in request["outputs"]]


def kept(folder: Path) -> list[str]:
    return sorted(path.name for path in (folder / "artifacts").iterdir())


def failing_after(step: int, patch: pytest.MonkeyPatch) -> None:
    plain = events.EventBus.emit

    def emit(bus: events.EventBus, event: Any) -> None:
        plain(bus, event)
        if isinstance(event, events.StepDone) and event.step == step:
            raise RuntimeError("a cable came loose")

    patch.setattr(events.EventBus, "emit", emit)


@pytest.fixture(scope="module")
def whole(one_thread: None, tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("whole")
    assert run(root, "run") == 0
    return root / "run"


@pytest.fixture(scope="module")
def half(one_thread: None, tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("half")
    assert run(root, "run", "--until", "denoise") == 0
    return root / "run"


@pytest.fixture
def failed(one_thread: None, tmp_path: Path) -> Path:
    with pytest.MonkeyPatch.context() as patch:
        failing_after(2, patch)
        assert run(tmp_path, "run") == 4
    return tmp_path / "run"


def test_a_done_run_keeps_its_latents_with_their_hash_and_nothing_else(whole: Path) -> None:
    assert kept(whole) == ["denoise.safetensors"]
    (entry,) = record(whole)["requests"][0]["artifacts"]
    assert (entry["stage"], entry["step"], entry["path"]) == ("denoise", None, "artifacts/denoise.safetensors")
    assert len(entry["sha256"]) == 64
    assert not (whole / ".running").exists()


def test_keep_artifacts_keeps_every_file_and_off_keeps_none(one_thread: None, tmp_path: Path) -> None:
    assert run(tmp_path, "all", "output.keep_artifacts=true", "checkpoint.stages=all") == 0
    steps = [f"denoise.step{step}.safetensors" for step in (1, 2)]
    stages = [f"{stage}.safetensors" for stage in ("decode", "denoise", "encode_prompt")]
    assert kept(tmp_path / "all") == sorted([*steps, *stages])
    assert run(tmp_path, "none", "checkpoint.stages=off", "checkpoint.every_steps=null") == 0
    assert not (tmp_path / "none" / "artifacts").exists()


def test_a_failed_run_says_how_to_go_on_and_goes_on(
    whole: Path, failed: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    capsys.readouterr()
    before = record(failed)
    assert before["status"] == "failed"
    assert "--resume" in (failed / "log.txt").read_text(encoding="utf-8")
    assert main(["run", "--quiet", "--resume", str(failed), "output.quality=80"]) == 0
    after = record(failed)
    assert frames(failed) == frames(whole)
    assert (after["status"], after["started"], len(after["resumed"])) == ("done", before["started"], 1)
    assert any("goes on after step 2 of stage 'denoise'" in note for note in after["plan"]["notes"])
    assert kept(failed) == ["denoise.safetensors"]


def test_what_decides_the_picture_may_not_change_and_every_difference_is_named(
    failed: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["prompt=a four", "request.num_inference_steps=4", "numerics.vae_tiling=true", "residency=low_vram"]
    assert main(["run", "--quiet", "--resume", str(failed), *words]) == 2
    lines = capsys.readouterr().err.strip().splitlines()
    assert len(lines) == 3
    assert "prompt: the run has 'a three', and this would be 'a four'" in lines[0]
    assert all("from the command line" in line for line in lines)


def test_a_changed_input_is_named_before_anything_runs(failed: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from framework.artifacts.files import load_artifact, read_about, save_artifact

    for path in (failed / "artifacts").iterdir():
        import torch

        about = read_about(path)
        made_of = {**about.made_of, "the weights": "others"}
        values = load_artifact(path, torch.device("cpu"))
        save_artifact(path, type(about)(about.stage, about.request, about.step, made_of), values)
    text = (failed / "record.json").read_text(encoding="utf-8")
    data = json.loads(text)
    data["requests"][0]["artifacts"] = []
    (failed / "record.json").write_text(json.dumps(data), encoding="utf-8")
    assert main(["run", "--quiet", "--resume", str(failed)]) == 2
    assert "the weights changed since" in capsys.readouterr().err


def test_a_damaged_file_is_told_of_and_the_one_before_is_used(whole: Path, failed: Path) -> None:
    step = failed / "artifacts" / "denoise.step2.safetensors"
    content = bytearray(step.read_bytes())
    content[-1] ^= 1
    step.write_bytes(content)
    assert main(["run", "--quiet", "--resume", str(failed)]) == 0
    notes = record(failed)["plan"]["notes"]
    assert any("denoise.step2.safetensors" in note and "it is not used" in note for note in notes)
    assert any("goes on with stage 'denoise' (encode_prompt.safetensors)" in note for note in notes)
    assert frames(failed) == frames(whole)


def test_a_run_that_another_process_works_on_is_left_alone(failed: Path, capsys: pytest.CaptureFixture[str]) -> None:
    lock = FolderLock(failed)
    assert main(["run", "--quiet", "--resume", str(failed)]) == 2
    assert "another process is working in" in capsys.readouterr().err
    lock.release()


def test_until_ends_after_a_stage_and_resume_makes_the_rest(
    whole: Path, half: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "half"
    shutil.copytree(half, folder)
    assert kept(folder) == ["denoise.safetensors", "encode_prompt.safetensors"]
    assert not frames(folder)
    assert main(["run", "--quiet", "--resume", str(folder)]) == 0
    assert frames(folder) == frames(whole)
    assert main(["run", "--quiet", "--resume", str(folder)]) == 2
    assert "there is nothing to resume; `run --from" in capsys.readouterr().err


def test_resume_until_a_stage_makes_what_it_makes_although_later_things_are_kept(
    failed: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    prompt = failed / "artifacts" / "encode_prompt.safetensors"
    prompt.unlink()
    assert main(["run", "--quiet", "--resume", str(failed), "--until", "encode_prompt"]) == 0
    assert "encode_prompt" in record(failed)["requests"][0]["timings"]["stages"]
    assert kept(failed) == ["denoise.step2.safetensors", "encode_prompt.safetensors"]
    before = prompt.stat().st_mtime_ns
    assert main(["run", "--quiet", "--resume", str(failed), "--until", "encode_prompt"]) == 0
    assert prompt.stat().st_mtime_ns == before
    notes = record(failed)["plan"]["notes"]
    assert "request 1: what stage 'encode_prompt' makes is kept (encode_prompt.safetensors)" in notes


def test_a_resumed_run_that_ended_early_goes_on_after_its_newest_step(whole: Path, failed: Path) -> None:
    assert main(["run", "--quiet", "--resume", str(failed), "--until", "encode_prompt"]) == 0
    assert main(["run", "--quiet", "--resume", str(failed)]) == 0
    assert any("goes on after step 2 of stage 'denoise'" in note for note in record(failed)["plan"]["notes"])
    assert frames(failed) == frames(whole)


def test_a_stage_starts_from_the_results_of_another_run_or_of_a_file(whole: Path, half: Path, tmp_path: Path) -> None:
    place = ["run", "--quiet", f"output.root={tmp_path}", "output.report=false"]
    assert main([*place, "output.name=one", "--from", str(half), "--from-stage", "decode"]) == 0
    assert frames(tmp_path / "one") == frames(whole)
    file = half / "artifacts" / "denoise.safetensors"
    assert main([*place, "output.name=two", *QUICK, "--from-stage", f"decode={file}"]) == 0
    assert frames(tmp_path / "two") == frames(whole)
    assert "encode_prompt" not in record(tmp_path / "two")["requests"][0]["timings"]["stages"]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--from-stage", "decod={half}"], "--from-stage: there is no stage 'decod'; did you mean 'decode'?"),
        (["--from-stage", "decode"], "--from-stage: needs one place to read results from"),
        (["--from-stage", "decode=nowhere"], "--from-stage: 'nowhere' does not exist"),
        (["--from-stage", "decode={whole}/record.json"], "record.json' cannot be used: it "),
        (["--from-stage", "denoise={whole}"], "has no negative_prompt_embeds and no prompt_embeds, which 'denoise'"),
        (["--from-stage", "decode={half}", "--until", "denoise"], "--until: 'denoise' comes before 'decode'"),
        (["--resume", "{half}", "--from", "{half}"], "--resume: goes on where the run ended, so it takes no --from"),
        (["--resume", "nowhere"], "--resume: 'nowhere' does not exist"),
        (["--resume", "{half}", "output.name=x"], "output.name: a run is continued in its own folder"),
        (["--until", "exports"], "--until: there is no stage 'exports'; did you mean 'export'?"),
        (["--dry-run", "--until", "exports"], "--until: there is no stage 'exports'; did you mean 'export'?"),
    ],
)
def test_flags_that_lead_nowhere_are_one_line_each(
    words: list[str], said: str, whole: Path, half: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    own = [word.format(half=half, whole=whole) for word in words]
    place = [] if "--resume" in words else [f"output.root={tmp_path}", *QUICK]
    assert main(["run", "--quiet", *place, *own]) == 2
    error = capsys.readouterr().err.strip()
    assert said in error
    assert len(error.splitlines()) == 1
    assert not list(tmp_path.iterdir())


def test_a_new_value_that_only_skipped_stages_would_read_is_refused(
    half: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    place = ["run", "--quiet", f"output.root={tmp_path}", "--from", str(half), "--from-stage"]
    assert main([*place, "decode", "seed=4", "prompt=a four", "request.fps=3"]) == 2
    lines = capsys.readouterr().err.strip().splitlines()
    assert [line.split(": ")[2] for line in lines] == ["prompt", "seed"]
    assert "no stage from 'decode' on reads it" in lines[0]


def test_a_disk_that_is_full_costs_the_artifact_and_not_the_run(
    whole: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from framework.artifacts import files as artifacts

    def full(*_: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(artifacts, "save_file", full)
    assert run(tmp_path, "run") == 0
    assert frames(tmp_path / "run") == frames(whole)
    notes = record(tmp_path / "run")["plan"]["notes"]
    assert sum("No space left on device; nothing more is kept to continue from" in note for note in notes) == 1
    assert run(tmp_path, "until", "--until", "denoise") == 4


def test_a_disk_without_room_for_the_rest_is_found_before_loading(
    failed: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from framework.outputs import folder

    usage = shutil.disk_usage(failed)
    monkeypatch.setattr(folder.shutil, "disk_usage", lambda _: usage._replace(free=1000))
    assert main(["run", "--resume", str(failed)]) == 3
    error = capsys.readouterr().err
    assert "0 MiB free" in error
    assert "loading" not in error
