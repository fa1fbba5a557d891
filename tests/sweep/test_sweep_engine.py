"""The local engine with workers that cost nothing: failures, limits, resume, one folder for one sweep."""

import csv
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from framework.cli import main

States = Callable[[], dict[int, dict[str, Any]]]
Sweep = Callable[..., int]
KINDS = ("good", "raise", "exit", "kill", "hang", "memory")

pytestmark = pytest.mark.usefixtures("fake_workers")


def statuses(states: States) -> list[str]:
    return [state["status"] for state in states().values()]


def attempts(states: States) -> list[int]:
    return [len(state["attempts"]) for state in states().values()]


@pytest.mark.parametrize(
    ("devices", "each", "times"),
    [("sim:4", 1, 1), *(pytest.param(devices, 4, 2, marks=pytest.mark.slow) for devices in ("none:4", "sim:4"))],
)
def test_one_job_never_ends_another_and_a_resume_runs_what_is_missing(
    devices: str,
    each: int,
    times: int,
    tmp_path: Path,
    sweep: Sweep,
    states: States,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """SW-01: failed, refused and finished jobs told apart; the exit code says that something failed."""
    words = [f"prompt=choice({','.join(KINDS)})", f"seed={','.join(map(str, range(each)))}"]
    words += ["sweep.job_limit_s=5", "--devices", devices]
    expected = ["done"] * each + ["failed"] * 4 * each + ["refused"] * each
    assert sweep(*words) == 4
    assert statuses(states) == expected
    out, err = capsys.readouterr()
    assert f"{each} done, {4 * each} failed, {each} refused" in out
    assert "exit code 3" in err
    assert "killed by SIGKILL" in err
    assert "longer than 5 s" in err
    for _ in range(times):
        before = attempts(states)
        assert sweep() == 4
        assert attempts(states) == [count + (number >= each) for number, count in enumerate(before)]
        assert statuses(states) == expected
    kept = tmp_path / "s" / states()[each + 1]["name"] / f"attempt-{times}"
    assert (kept / "log.txt").is_file()  # nothing of a failure is lost


def test_each_job_has_a_complete_log_of_its_own(tmp_path: Path, sweep: Sweep, states: States) -> None:
    """SW-02: traceback, resolved config and what libraries print are in the job's folder, and no other job's."""
    assert sweep("prompt=choice(good,raise)", "seed=1,2", "--devices", "none:2") == 4
    found = states()
    for state in found.values():
        folder = tmp_path / "s" / state["name"]
        log = (folder / "log.txt").read_text(encoding="utf-8")
        assert f"printed by {state['name']}" in log
        assert all(other["name"] not in log for other in found.values() if other is not state)
        assert ("Traceback" in log) == (state["status"] == "failed")
        record = json.loads((folder / "record.json").read_text(encoding="utf-8"))
        assert record["status"] == state["status"]
        assert record["config"]["seed"] == state["values"]["seed"]


def test_failures_are_told_as_they_happen(sweep: Sweep, capsys: pytest.CaptureFixture[str]) -> None:
    """SW-02: a line for each job when it ends, with the reason."""
    sweep("prompt=choice(raise,good)", "--devices", "none:1")
    lines = [line for line in capsys.readouterr().err.splitlines() if line.startswith("[")]
    assert lines[0].startswith("[1/2] job 1 failed on none:0")
    assert lines[0].endswith("(prompt=raise): stage 'denoise' failed: this one raises")
    assert lines[1].startswith("[2/2] job 2 done on none:0")


def test_a_job_is_alone_on_its_device_and_no_other_device_is_used(
    tmp_path: Path, sweep: Sweep, states: States, monkeypatch: pytest.MonkeyPatch
) -> None:
    """SW-03 and SW-04: jobs record devices of the list, and see the one they are on."""
    monkeypatch.setenv("FRAMEWORK_SIM_DEVICES", "3,5")
    assert sweep("seed=range(0,6)", "--devices", "sim:2") == 0
    found = states()
    assert {state["attempts"][0]["device"] for state in found.values()} == {"sim:3", "sim:5"}
    for state in found.values():
        seen = (tmp_path / "s" / state["name"] / "seen.txt").read_text(encoding="utf-8")
        own = state["attempts"][0]["device"].removeprefix("sim:")
        assert seen.startswith(f"sim {{'FRAMEWORK_SIM_DEVICES': '{own}'")


def test_a_job_that_names_a_device_runs_on_that_one(tmp_path: Path, sweep: Sweep, states: States) -> None:
    """SW-04: `device=sim:1` means the second that the parent sees, and number 0 inside the job."""
    assert sweep("device=sim:1", "seed=1,2,3", "--devices", "sim:2") == 0
    assert {state["attempts"][0]["device"] for state in states().values()} == {"sim:1"}
    folder = tmp_path / "s" / states()[1]["name"]
    assert (folder / "seen.txt").read_text(encoding="utf-8").startswith("sim {'FRAMEWORK_SIM_DEVICES': '1'")


def test_two_jobs_share_a_device_when_that_is_asked_for(sweep: Sweep, states: States) -> None:
    """SW-03: two at once on each device, never more."""
    assert sweep("seed=range(0,4)", "--devices", "sim:2", "--jobs-per-device", "2") == 0
    assert sorted(state["attempts"][0]["device"] for state in states().values()) == ["sim:0"] * 2 + ["sim:1"] * 2


def test_a_worker_is_kept_between_jobs_and_replaced_after_a_failure(
    tmp_path: Path, sweep: Sweep, states: States
) -> None:
    sweep("prompt=choice('good 1','good 2','raise','good 3','good 4')", "--devices", "none:1")
    found = [tmp_path / "s" / state["name"] / "seen.txt" for state in states().values() if state["status"] == "done"]
    pids = [file.read_text(encoding="utf-8").rpartition("pid ")[2] for file in found]
    assert pids[0] == pids[1] != pids[2] == pids[3]


def test_fresh_workers_serve_one_job(tmp_path: Path, sweep: Sweep, states: States) -> None:
    assert sweep("seed=1,2", "sweep.workers=fresh", "--devices", "none:1") == 0
    found = [tmp_path / "s" / state["name"] / "seen.txt" for state in states().values()]
    assert len({file.read_text(encoding="utf-8").rpartition("pid ")[2] for file in found}) == 2


def test_retries_are_counted_in_the_folder(sweep: Sweep, states: States) -> None:
    assert sweep("prompt=choice(good,raise,memory)", "--devices", "none:2", "--retries", "2") == 4
    assert attempts(states) == [1, 3, 1]  # a refusal is final


@pytest.mark.parametrize(("flag", "ran"), [(("--fail-fast",), 1), (("--max-failures", "2"), 2)])
def test_no_job_is_started_after_so_many_failures(
    flag: tuple[str, ...], ran: int, sweep: Sweep, states: States
) -> None:
    """SW-01: stop at the first failure; what did not run is to come."""
    assert sweep("prompt=raise", "seed=1,2,3,4", "--devices", "none:1", *flag) == 4
    assert statuses(states) == ["failed"] * ran + ["pending"] * (4 - ran)


def test_refusals_alone_end_with_3(sweep: Sweep, states: States) -> None:
    assert sweep("prompt=choice(good,memory)", "--devices", "none:1") == 3
    assert statuses(states) == ["done", "refused"]


def test_a_sweep_resumes_on_evidence_only(
    tmp_path: Path, sweep: Sweep, states: States, capsys: pytest.CaptureFixture[str]
) -> None:
    """SW-05: finished jobs are skipped; a damaged, a missing and a claimed result are made again."""
    assert sweep("seed=range(0,4)", "--devices", "none:1") == 0
    folders = {number: tmp_path / "s" / state["name"] for number, state in states().items()}
    (folders[1] / "seen.txt").write_text("damaged")
    (folders[2] / "record.json").unlink()
    record = json.loads((folders[3] / "record.json").read_text(encoding="utf-8"))
    record["config"]["seed"] = 99  # of another job
    (folders[3] / "record.json").write_text(json.dumps(record), encoding="utf-8")
    assert sweep() == 0
    assert attempts(states) == [2, 2, 2, 1]
    assert "job 1: its result is incomplete or damaged; it is made again" in capsys.readouterr().err
    assert sweep("seed=range(0,4)", "--devices", "none:1") == 0
    assert attempts(states) == [2, 2, 2, 1]


def test_a_changed_sweep_is_refused_or_extended(
    tmp_path: Path, sweep: Sweep, states: States, capsys: pytest.CaptureFixture[str]
) -> None:
    """SW-05: other values in the same folder are never mixed in silently, and keep their numbers apart."""
    assert sweep("seed=1,2", "--devices", "none:1") == 0
    assert sweep("seed=2,3", "--devices", "none:1") == 2
    assert "the folder holds another sweep: 1 of these jobs are not in it and 1 of its jobs are not" in (
        capsys.readouterr().err
    )
    assert sweep("seed=2,3", "--devices", "none:1", "--extend") == 0
    assert [state["values"]["seed"] for state in states().values()] == [1, 2, 3]
    assert attempts(states) == [1, 1, 1]
    manifest = json.loads((tmp_path / "s" / "sweep.json").read_text(encoding="utf-8"))
    assert manifest["axes"] == {"seed": [1, 2, 3]}
    assert len(manifest["commands"]) == 2
    assert {"schema", "version", "created"} <= set(manifest)


def test_a_sweep_whose_files_have_changed_is_not_resumed(
    tmp_path: Path, sweep: Sweep, capsys: pytest.CaptureFixture[str]
) -> None:
    conf = tmp_path / "conf" / "experiment"
    conf.mkdir(parents=True)
    text = "# @package _global_\nrequest: {height: 32}\n"
    (conf / "mine.yaml").write_text(text)
    assert sweep("experiment=mine", "seed=1,2", "--config-dir", str(conf.parent), "--devices", "none:1") == 0
    (conf / "mine.yaml").write_text(text.replace("32", "64"))
    assert sweep() == 2
    assert "the files behind this sweep have changed since it was started: job 1, 2" in capsys.readouterr().err


def test_one_folder_is_run_by_one_process(tmp_path: Path, sweep: Sweep, capsys: pytest.CaptureFixture[str]) -> None:
    """SW-06: the second start stops with a message, and so does a sweep over other content."""
    from framework.sweep.manifest import locked

    assert sweep("seed=1", "--devices", "none:1") == 0
    with locked(tmp_path / "s"):
        assert sweep() == 2
    assert "another process is running the sweep" in capsys.readouterr().err
    other = tmp_path / "other"
    other.mkdir()
    (other / "thesis.txt").write_text("precious")
    assert main(["sweep", "--dir", str(other), "seed=1"]) == 2
    assert "holds something else than a sweep" in capsys.readouterr().err


def test_sweeps_without_a_folder_of_their_own_get_dated_ones(tmp_path: Path) -> None:
    """SW-06: two starts with the same setting never share a folder."""
    words = [f"output.root={tmp_path}", "seed=1", "--devices", "none:1", "--quiet"]
    assert main(["sweep", *words]) == main(["run", "-m", *words]) == 0
    assert len(list(tmp_path.glob("*/sweep.json"))) == 2


def test_folders_are_short_portable_and_unique(tmp_path: Path, sweep: Sweep, states: States) -> None:
    """SW-08: no value of any kind is in a folder's name; the true values are in the record."""
    long = "x" * 300
    prompts = ("a/b\\c", "16:9", long, "a<b>|c?*", "con", "dot. ", "dot.")
    listed = ",".join(f"'{prompt}'" for prompt in prompts)
    assert sweep(f"prompt=choice({listed})", "--devices", "none:2") == 0
    names = [state["name"] for state in states().values()]
    assert len(set(names)) == len(prompts)
    assert all(len(name) == 13 and name.replace("-", "").isalnum() for name in names)
    for state, prompt in zip(states().values(), prompts, strict=True):
        record = json.loads((tmp_path / "s" / state["name"] / "record.json").read_text(encoding="utf-8"))
        assert record["config"]["prompt"] == record["requests"][0]["prompt"] == prompt


def test_the_table_of_results_has_a_line_for_each_job(tmp_path: Path, sweep: Sweep) -> None:
    sweep("prompt=choice('=1+1, x',raise)", "seed=1,2", "--devices", "none:1")
    with (tmp_path / "s" / "results.csv").open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    assert [row["status"] for row in rows] == ["done", "done", "failed", "failed"]
    assert [row["seed"] for row in rows] == ["1", "2", "1", "2"]
    assert rows[0]["prompt"] == "'=1+1, x"  # a spreadsheet must not run it
    assert rows[0]["output"] == "seen.txt"
    assert rows[2]["error"] == "stage 'denoise' failed: this one raises"


def test_a_sweep_has_a_page_unless_its_jobs_are_to_have_none(tmp_path: Path, sweep: Sweep) -> None:
    sweep("prompt=choice(good,raise)", "--devices", "none:1")
    page = (tmp_path / "s" / "report.html").read_text(encoding="utf-8")
    assert "1 done, 1 failed" in page
    assert "this one raises" in page
    assert main(["sweep", "--dir", str(tmp_path / "t"), "seed=1", "output.report=false", "--devices", "none:1"]) == 0
    assert (tmp_path / "t" / "results.csv").is_file()
    assert not (tmp_path / "t" / "report.html").exists()


def test_status_tells_done_failed_and_what_to_read(
    tmp_path: Path, sweep: Sweep, capsys: pytest.CaptureFixture[str]
) -> None:
    sweep("prompt=choice(good,raise)", "--devices", "none:1")
    capsys.readouterr()
    assert sweep("--status") == 0
    out = capsys.readouterr().out
    assert "1 done, 1 failed; not running" in out
    assert "log.txt" in out
    assert main(["sweep", "--dir", str(tmp_path), "--status"]) == 2


def start(folder: Path, *words: str) -> "subprocess.Popen[str]":
    code = (
        "from framework.sweep import process; process.MODULE = 'fake_worker'; from framework.cli import run_and_exit;"
        "run_and_exit()"
    )
    path = os.pathsep.join(sys.path)
    return subprocess.Popen(
        [sys.executable, "-c", code, "sweep", "--dir", str(folder), *words],
        env={**os.environ, "PYTHONPATH": path},
        stderr=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        text=True,
    )


def wait_for(condition: Callable[[], bool], seconds: float = 60.0) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "it did not come"
        time.sleep(0.05)


def begun(folder: Path, count: int) -> bool:
    logs = [log.read_text(encoding="utf-8") for log in folder.glob("*/log.txt")]
    return sum("printed by" in log for log in logs) >= count


def test_ctrl_c_marks_running_jobs_as_interrupted(tmp_path: Path, sweep: Sweep, states: States) -> None:
    """SW-05: an interrupted job is run by the resume; what has not begun is to come."""
    process = start(tmp_path / "s", "prompt=choice(good,hang)", "seed=1,2", "--devices", "none:1")
    wait_for(lambda: begun(tmp_path / "s", 3))
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=30)
    assert process.returncode == 130
    assert "resume with: framework sweep --dir" in err
    assert statuses(states) == ["done", "done", "interrupted", "pending"]
    record = json.loads((tmp_path / "s" / states()[3]["name"] / "record.json").read_text(encoding="utf-8"))
    assert record["status"] == "interrupted"


def test_a_second_ctrl_c_is_immediate(tmp_path: Path, states: States) -> None:
    process = start(tmp_path / "s", "prompt=stuck", "--devices", "none:1")
    wait_for(lambda: begun(tmp_path / "s", 1))
    process.send_signal(signal.SIGINT)
    time.sleep(0.5)
    assert process.poll() is None  # it waits for the job to close its record
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=5)
    assert process.returncode == 130
    assert statuses(states) == ["interrupted"]


def test_workers_end_with_their_parent_and_the_sweep_resumes(tmp_path: Path, sweep: Sweep, states: States) -> None:
    """SW-05: killed during a job, it goes on from there; the job that was under way is made again."""
    process = start(tmp_path / "s", "prompt=choice(good,stuck)", "sweep.job_limit_s=5", "--devices", "none:1")
    wait_for(lambda: begun(tmp_path / "s", 2))
    children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text(encoding="ascii").split()
    process.kill()
    process.communicate()
    wait_for(lambda: not any(alive(int(pid)) for pid in children), 10)
    assert statuses(states) == ["done", "running"]
    assert sweep("--status") == 0
    assert sweep() == 4
    assert attempts(states) == [1, 2]
    assert [attempt["status"] for attempt in states()[2]["attempts"]] == ["interrupted", "failed"]


def alive(pid: int) -> bool:
    """Whether a process runs; one that is only not buried yet does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text(encoding="ascii").rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False
