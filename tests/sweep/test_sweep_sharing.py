"""Several jobs on one device, and several devices for one job."""

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from framework.compose.arguments import Flags
from framework.errors import ConfigError
from framework.sweep import weigh as weigh_module
from framework.sweep.devices import Device
from framework.sweep.foresight import Foreseen, Question
from framework.sweep.plan import SweepPlan, plan_sweep
from framework.sweep.spread import together

States = Callable[[], dict[int, dict[str, Any]]]
GB = 10**9


def plan(*words: str, **flags: Any) -> SweepPlan:
    own = [] if any(word.startswith("device=") for word in words) else ["device=sim"]
    return plan_sweep([*own, *words], Flags(**{"devices": "sim:2", **flags}), lambda spec: None)


@pytest.fixture
def foreseen(monkeypatch: pytest.MonkeyPatch) -> dict[str, Foreseen]:
    """What plans say, by residency; the default is that a job takes 5 GB."""
    answers: dict[str, Foreseen] = {}

    def foresee(questions: Sequence[Question], every: bool = False) -> list[Foreseen]:
        names = [str(question.job.values.get("residency")) for question in questions]
        return [answers.get(name, Foreseen(peak_bytes=5 * GB)) for name in names]

    monkeypatch.setattr(weigh_module, "foresee", foresee)
    return answers


def test_plans_say_how_many_jobs_share_a_device(foreseen: dict[str, Foreseen]) -> None:
    """The largest peak fits so often into 24.7 GB; there is no place without a job."""
    words = ["seed=range(0,4)", "residency=none,low_vram"]
    found = plan(*words, jobs_per_device="auto")
    assert found.settings.jobs_per_device == 4
    assert found.notes == ("4 jobs at once on each device: by their plans the largest takes 5000.0 MB",)
    foreseen["low_vram"] = Foreseen(peak_bytes=9 * GB)
    assert plan(*words, jobs_per_device="auto").settings.jobs_per_device == 2
    assert plan("seed=1,2", jobs_per_device="auto").settings.jobs_per_device == 1


def test_a_job_that_nobody_can_foresee_has_its_device_alone(foreseen: dict[str, Foreseen]) -> None:
    foreseen["low_vram"] = Foreseen(known=False)
    found = plan("seed=1,2", "residency=none,low_vram", jobs_per_device="auto")
    assert found.settings.jobs_per_device == 1
    assert found.notes == ("one job at once on each device: nobody knows what job 2 takes",)
    on_processor = plan_sweep(["seed=1,2"], Flags(devices="none:1", jobs_per_device="auto"), lambda spec: None)
    assert on_processor.settings.jobs_per_device == 1


def test_where_nothing_is_left_to_run_nothing_shares() -> None:
    found = plan("budget.device=1KiB", jobs_per_device="auto")
    assert found.notes == ("no job is left to share a device",)


def test_a_plan_that_does_not_fit_is_a_refusal(foreseen: dict[str, Foreseen]) -> None:
    """Issue: all jobs are planned before the first starts."""
    foreseen["auto"] = Foreseen(refusal="denoise needs 30 GB, and the device has 24")
    jobs = plan("residency=none,auto").jobs
    assert [job.refusal for job in jobs] == [None, "denoise needs 30 GB, and the device has 24"]


def test_jobs_that_share_a_device_get_their_share_and_no_more(
    tmp_path: Path, fake_workers: None, sweep: Callable[..., int], states: States
) -> None:
    assert sweep("seed=1,2", "device=sim", "--devices", "sim:1", "--jobs-per-device", "2") == 0
    for state in states().values():
        seen = (tmp_path / "s" / state["name"] / "seen.txt").read_text(encoding="utf-8")
        assert f"bytes {24696061952 // 2} " in seen


def test_a_job_sees_its_two_devices_and_no_other(
    tmp_path: Path, fake_workers: None, sweep: Callable[..., int], states: States, capsys: pytest.CaptureFixture[str]
) -> None:
    """Transformers are put on the second where nobody says anything; the names of jobs do not follow from that."""
    assert sweep("seed=1,2,3", "device=sim", "--devices", "sim:5", "--devices-per-job", "2") == 0
    assert "note: no job gets sim:4: each has 2 devices" in capsys.readouterr().err
    found = states()
    assert {state["attempts"][0]["device"] for state in found.values()} == {"sim:0+1", "sim:2+3"}
    for state in found.values():
        folder = tmp_path / "s" / state["name"]
        numbers = state["attempts"][0]["device"].removeprefix("sim:").replace("+", ",")
        assert f"'FRAMEWORK_SIM_DEVICES': '{numbers}'" in (folder / "seen.txt").read_text(encoding="utf-8")
        config = json.loads((folder / "record.json").read_text(encoding="utf-8"))["config"]
        placed = {name: part.get("device") for name, part in config["pipeline"]["components"].items()}
        own = {name: device for name, device in placed.items() if device is not None}
        assert own == dict.fromkeys(("transformer", "transformer_2"), "sim:1")
    before = {state["name"] for state in found.values()}
    assert before == {job.name for job in plan("seed=1,2,3").jobs}
    assert sweep() == 0
    assert {len(state["attempts"]) for state in states().values()} == {1}


def test_what_the_config_places_stays_there() -> None:
    key = "pipeline.components.vae.device"
    jobs = plan(f"{key}=sim:0,sim:1,sim:2", devices_per_job="2").jobs
    assert len({job.identity for job in jobs}) == 3
    devices = [[part.device for part in job.spec.pipeline.components.values()] for job in jobs if job.spec is not None]
    assert [own.count("sim:1") for own in devices] == [0, 1]
    assert f"{key}: the job does not have sim:2; it has sim:0, sim:1" in str(jobs[2].refusal)
    with pytest.raises(ConfigError, match="the job does not have sim:1; it has sim:0; --devices-per-job gives more"):
        plan(f"{key}=sim:1")


def test_devices_of_one_job_are_on_one_machine() -> None:
    devices = [Device("cuda", number, f"cuda:{number}", {}, "ab"[number > 2]) for number in range(5)]
    groups, left = together(devices, 2)
    assert [device.label for device in groups] == ["cuda:0+1", "cuda:3+4"]
    assert [device.count for device in groups] == [2, 2]
    assert [device.label for device in left] == ["cuda:2"]
    with pytest.raises(ConfigError, match="a job is to have 4 devices, and no machine has more than"):
        together(devices, 4)
    with pytest.raises(ConfigError, match="a place on the processor is no device"):
        plan("seed=1", devices="none:2", devices_per_job="2")
    with pytest.raises(ConfigError, match="its components are on those"):
        plan("device=sim:1", devices_per_job="2")


@pytest.mark.slow
def test_jobs_that_the_planner_is_to_place_are_planned_in_a_process_of_their_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FRAMEWORK_CACHE", str(tmp_path))
    jobs = plan("residency=auto", "request.num_inference_steps=2", "budget.device=null,1MB").jobs
    assert [job.refusal is None for job in jobs] == [True, False]
    (room,) = jobs[0].rooms.values()
    assert room.peak_bytes is not None
    assert 10_000_000 < room.peak_bytes < 15_000_000
