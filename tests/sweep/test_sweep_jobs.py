"""All jobs are composed, checked and weighed before one starts, without torch."""

import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from framework.cli import main
from framework.compose import composer
from framework.compose.arguments import Flags
from framework.compose.composer import check
from framework.errors import ConfigError
from framework.paths import ROOT
from framework.sweep import compose_jobs as jobs_module
from framework.sweep import plan as plan_module
from framework.sweep.compose_jobs import report
from framework.sweep.devices import Device
from framework.sweep.job import unpack
from framework.sweep.places import places_of
from framework.sweep.plan import SweepPlan, plan_sweep


def plan(*words: str, **flags: Any) -> SweepPlan:
    return plan_sweep(words, Flags(**{"devices": "none:1", **flags}), lambda spec: None)


def test_the_files_of_one_choice_of_groups_are_composed_once(monkeypatch: pytest.MonkeyPatch) -> None:
    composed: list[object] = []
    compose = composer.compose_words
    monkeypatch.setattr(jobs_module, "compose_words", lambda *given: composed.append(given) or compose(*given))
    assert len(plan("seed=range(0,3)", "residency=low_vram,minimal").jobs) == 6
    assert len(composed) == 3  # the two presets, and the words of the sweep as a whole


def test_a_job_arrives_in_another_process_as_it_was_checked() -> None:
    (job,) = plan("prompt=a ${x} @b", "residency=low_vram", "seed=3").jobs
    assert job.parcel is not None
    assert job.spec is not None
    again = check(unpack(job.parcel))
    assert again == job.spec


def test_jobs_that_are_equal_are_one_and_names_follow_from_content() -> None:
    first = plan("seed=1,2", "request.height=32,null")  # null is the pipeline's own, which is another config
    assert [job.number for job in first.jobs] == [1, 2, 3, 4]
    names = {job.values["seed"]: job.name for job in plan("seed=2,1").jobs}
    other = {job.values["seed"]: job.name for job in plan("seed=1,2").jobs}
    assert {seed: name[5:] for seed, name in names.items()} == {seed: name[5:] for seed, name in other.items()}


def test_jobs_that_share_weights_have_one_load_key() -> None:
    jobs = plan("seed=1,2", "residency=low_vram,minimal", "request.num_inference_steps=1,2").jobs
    keys = {job.load_key: job.values["residency"] for job in jobs}
    assert sorted(keys.values()) == ["low_vram", "minimal"]


def test_one_report_lists_every_problem_and_the_good_jobs_run(
    tmp_path: Path, states: Callable[[], dict[int, Any]], capsys: pytest.CaptureFixture[str]
) -> None:
    """SW-09: an unknown component, a plan above the cap and a word of the sweep are known before job 1 starts."""
    conf = tmp_path / "conf" / "sweep"
    conf.mkdir(parents=True)
    (conf / "six.yaml").write_text(
        "points:\n"
        "  - {seed: 1}\n  - {seed: 2}\n  - {seed: 3}\n"
        "  - {component_residency.unet: resident}\n"
        "  - {budget.device: 1MiB}\n"
    )
    words = ["sweep", "sweep=six", "--config-dir", str(conf.parent), "--devices", "sim:2", "--dry-run"]
    assert main(words) == 3
    out, err = capsys.readouterr()
    assert "job 4: " in err
    assert "six.yaml:5: component_residency.unet: " in err
    assert "job 5: the weights that stay on the device" in err
    assert "budget.device leaves 1.0 MiB" in err
    assert "5 jobs, 2 refused; devices: sim:0, sim:1; nothing was run" in out
    with (conf / "six.yaml").open("a") as file:
        file.write("  - {sweep.engine: ray}\n")
    assert main(words) == 2
    assert "sweep.points[5].sweep.engine: only the sweep as a whole can say this" in capsys.readouterr().err
    assert not (tmp_path / "s").exists()


def test_refused_jobs_are_recorded_beside_the_good_ones(
    fake_workers: None, sweep: Callable[..., int], states: Callable[[], dict[int, Any]]
) -> None:
    """SW-09: with continue the good jobs run, and the exit code says that some could not."""
    assert sweep("budget.device=null,1MiB", "seed=1,2", "--devices", "sim:1") == 3
    found = states()
    assert [state["status"] for state in found.values()] == ["done", "done", "refused", "refused"]
    assert found[3]["error"].startswith("the weights that stay on the device")
    assert found[3]["attempts"] == []


def test_with_fail_fast_a_refused_job_starts_none(
    fake_workers: None, sweep: Callable[..., int], states: Callable[[], dict[int, Any]]
) -> None:
    assert sweep("residency=none,nope", "--devices", "none:1", "--fail-fast") == 4
    assert [state["status"] for state in states().values()] == ["pending", "refused"]


def test_a_mistake_in_every_job_is_told_once_and_makes_no_folder(
    tmp_path: Path, sweep: Callable[..., int], capsys: pytest.CaptureFixture[str]
) -> None:
    assert sweep("request.heigth=3", "seed=range(0,4)") == 2
    err = capsys.readouterr().err
    assert err.count("request.heigth: unknown key 'heigth'; did you mean 'height'?") == 1
    assert not (tmp_path / "s").exists()


def test_a_share_of_a_device_must_hold_what_a_job_keeps_there() -> None:
    """SW-03: two jobs on one device are refused where the plan says that they do not fit."""
    assert [job.refusal for job in plan("budget.device=12MiB", devices="sim:1").jobs] == [None]
    (job,) = plan("budget.device=12MiB", devices="sim:1", jobs_per_device="2").jobs
    assert job.refusal is not None
    assert job.refusal.startswith("2 jobs share a device: the weights that stay on the device")


def test_a_checkpoint_that_is_not_here_is_weighed_by_its_sheet(monkeypatch: pytest.MonkeyPatch) -> None:
    """A dry run on a laptop tells which jobs would fit the card, and fetches nothing."""
    words = ["pipeline=wan2", "prompt=x", "component_residency.dit=layerwise-offload,resident", "device=sim"]
    jobs = plan(*words, devices="sim:1").jobs
    assert jobs[0].refusal is None
    assert "the weights that stay on the device (transformer, transformer_2" in str(jobs[1].refusal)
    (job,) = plan("pipeline.model.source=/nowhere/at/all").jobs
    assert "the folder '/nowhere/at/all' does not exist" in str(job.refusal)


def test_each_card_of_a_cluster_gets_jobs_whose_plan_fits_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """A job that no card has room for is refused; one that says its card itself is weighed against that."""
    devices = [Device("sim", number, card, {}, "node", card) for number, card in enumerate(("rtx_3060_12gb", "h200"))]
    monkeypatch.setattr(plan_module, "_devices", lambda settings: devices)
    words = ["pipeline=wan2", "prompt=x", "device=sim", "component_residency.dit=layerwise-offload,resident"]
    small, large = plan(*words).jobs
    places = places_of(devices, 1)
    assert [place.takes(small) for place in places] == [True, True]
    assert [place.takes(large) for place in places] == [False, True]
    assert large.refusal is None
    (refused,) = plan(*words[:3], "component_residency.dit=resident", "hardware=rtx_4090").jobs
    assert "the weights that stay on the device" in str(refused.refusal)


def test_nothing_is_fetched_for_a_sweep_before_all_jobs_are_composed() -> None:
    asked: list[object] = []
    with pytest.raises(ConfigError):
        plan_sweep(["request.heigth=1", "seed=1,2"], Flags(devices="none:1"), asked.append)
    assert asked == []


def test_what_the_family_refuses_is_known_without_loading() -> None:
    (job,) = plan("request.height=33").jobs
    assert job.refusal is not None
    assert "request.height" in job.refusal
    assert report([job]) == [f"job 1: {line}" for line in job.refusal.splitlines()]


def test_a_device_that_the_sweep_does_not_have_is_refused() -> None:
    """SW-04: numbers beyond the list, and a GPU where there is none."""
    jobs = plan("device=sim:0,sim:2,cuda", devices="sim:2").jobs
    assert [bool(job.refusal) for job in jobs] == [False, True, True]
    assert "the sweep does not have sim:2; it has sim:0, sim:1" in str(jobs[1].refusal)


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        ({"retries": "many"}, "--retries: 'many' is not a whole number from 0 on"),
        ({"max_failures": "0"}, "--max-failures: '0' is not a whole number from 1 on"),
        ({"engine": "slurm"}, "sweep.engine: 'slurm' is not part of this version"),
    ],
)
def test_settings_are_checked(flags: dict[str, str], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        plan("seed=1", **flags)


def test_the_command_line_beats_the_file_and_no_key_is_named_twice(tmp_path: Path) -> None:
    jobs = plan("sweep=digits_steps", "request.num_inference_steps=16", "seed=5").jobs
    assert [job.spec.requests[0].num_inference_steps for job in jobs if job.spec] == [16, 16]
    assert {job.spec.requests[0].seeds for job in jobs if job.spec} == {(5,)}
    with pytest.raises(ConfigError, match="seed: is named twice"):
        plan("seed=1,2", "seed=3")
    prompts = tmp_path / "prompts.txt"
    prompts.write_text("a, b\nc\n")
    assert [job.values["prompt"] for job in plan(prompts=str(prompts)).jobs] == ["a, b", "c"]
    with pytest.raises(ConfigError, match="prompt: a prompts file and another prompt; keep one"):
        plan("prompt=x", prompts=str(prompts))


def test_a_wrong_value_of_a_preset_is_told_at_its_line(tmp_path: Path) -> None:
    (tmp_path / "sweep").mkdir()
    text = "axes:\n  sead: [1, 2]\npoints:\n  - {seed: x}\n"
    (tmp_path / "sweep" / "mine.yaml").write_text(text, encoding="utf-8")
    with pytest.raises(ConfigError) as caught:
        plan("sweep=mine", config_dir=(str(tmp_path),))
    axis, point = str(caught.value).splitlines()
    assert axis.endswith("mine.yaml:2: sead: unknown key 'sead'; did you mean 'seed'?")
    assert point.endswith("mine.yaml:4: seed: expected a whole number or a list, got text 'x'")


def test_a_point_that_stands_twice_is_refused_at_its_line(tmp_path: Path) -> None:
    (tmp_path / "sweep").mkdir()
    text = "points:\n  - {seed: 1, prompt: x}\n  - {seed: 2}\n  - {prompt: x, seed: 1}\n"
    (tmp_path / "sweep" / "mine.yaml").write_text(text, encoding="utf-8")
    with pytest.raises(ConfigError, match=r"mine.yaml:4: sweep.points\[2\]: sets the same as sweep.points\[0\]"):
        plan("sweep=mine", config_dir=(str(tmp_path),))


@pytest.mark.parametrize("flag", [(), ("--dry-run",)])
def test_a_place_that_can_be_no_folder_is_refused_by_its_flag_before_anything_runs(
    flag: tuple[str, ...], tmp_path: Path, sweep: Callable[..., int], capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "s").write_text("")
    assert sweep("seed=1", *flag) == 2
    assert capsys.readouterr().err == f"--dir: '{tmp_path / 's'}' is no folder; choose another folder\n"
    assert main(["sweep", "seed=1", "--dir", str(tmp_path / "a:b"), *flag]) == 2
    assert "--dir: the folder name 'a:b' has one of" in capsys.readouterr().err
    assert main(["sweep", "seed=1", "--dir", str(tmp_path), *flag]) == 2
    assert "holds something else than a sweep; choose another folder" in capsys.readouterr().err


@pytest.mark.parametrize(
    "name",
    [
        "results.csv",
        "sweep.lock",
        *(pytest.param(name, marks=pytest.mark.slow) for name in ("0001-", "0001-/job.json")),
    ],
)
def test_a_file_of_a_sweep_that_cannot_be_written_is_named(
    name: str, fake_workers: None, tmp_path: Path, sweep: Callable[..., int], capsys: pytest.CaptureFixture[str]
) -> None:
    assert sweep("seed=1") == 0
    job = next((tmp_path / "s").glob("0001-*"))
    shutil.rmtree(job)
    path = Path(str(tmp_path / "s" / name).replace("0001-", str(job.name)))
    path.unlink(missing_ok=True)
    path.write_text("") if path == job else (path / "full").mkdir(parents=True)
    capsys.readouterr()
    assert main(["sweep", "--dir", str(tmp_path / "s"), "--status"]) == 0
    assert capsys.readouterr().out.endswith("1 pending; not running\n")
    assert sweep() == (2 if name == "sweep.lock" else 4)
    err = capsys.readouterr().err
    assert "internal error" not in err
    assert "cannot " in err
    assert str(path if name != "sweep.lock" else path.parent) in err


def test_a_plain_run_does_not_take_a_sweep_for_one_run(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run", "sweep=digits_steps", "--dry-run"]) == 2
    assert "sweep.axes: these are many runs; start them with `framework sweep`" in capsys.readouterr().err


def test_the_parent_never_imports_torch() -> None:
    code = (
        "import sys; from framework.cli import main;"
        "main(['sweep', 'seed=1,2', 'device=sim', '--devices', 'sim:2', '--dry-run']);"
        "import framework.sweep.conduct; sys.exit(bool({'torch', 'diffusers', 'transformers'} & set(sys.modules)))"
    )
    assert subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, check=False).returncode == 0


@pytest.mark.parametrize(
    "word",
    [
        "pipeline.components=1e3", "pipeline.components.vae=3", "pipeline.components.vae.device=sim:x",
        "pipeline.components.transformer.group=[1]", "pipeline.components.vae.device=sim:9", "device=[1]",
    ],
)  # fmt: skip
def test_what_is_no_pipeline_is_refused_by_name_before_its_devices_are_looked_at(
    word: str, capsys: pytest.CaptureFixture[str]
) -> None:
    devices = ["--devices", "sim:2", "--devices-per-job", "2"]
    assert main(["sweep", "--dry-run", *devices, word, "seed=1,2"]) == 2
    assert f"(from the command line: {word}): {word.partition('=')[0]}" in capsys.readouterr().err
