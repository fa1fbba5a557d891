"""What a sweep shows on a terminal and anywhere else."""

import io

import pytest
from rich.console import Console

from framework.sweep.job import Job
from framework.sweep.show import Lines, Quiet, Table, find_watcher, job_line
from framework.sweep.state import Attempt, State

JOBS = [
    Job(
        number=number, words=(), values={"prompt": "a [red]cat[/red]\nb", "seed": number}, identity="ab" * 8, content=""
    )
    for number in (1, 2, 3)
]


def states() -> dict[str, State]:
    return {job.name: State(job.name, job.number, job.values, ()) for job in JOBS}


def finish(state: State, status: str, error: str | None = None) -> None:
    state.status, state.error = status, error
    state.attempts.append(Attempt("sim:1", "then", "now", status, error, 3.0))


def test_a_line_says_job_state_device_time_values_and_reason() -> None:
    state = states()[JOBS[0].name]
    finish(state, "failed", "it broke")
    line = job_line(JOBS[0], state, again=True)
    assert line == ("job 1 failed on sim:1, 3.00 s (prompt=a [red]cat[/red] b seed=1): it broke; it is tried again")


def test_lines_count_what_has_ended_and_quiet_ones_what_went_wrong() -> None:
    known = states()
    for kind, expected in ((Lines, ["[1/3] job 1 done", "[1/3] job 2 failed"]), (Quiet, ["[0/3] job 2 failed"])):
        stream = io.StringIO()
        watcher = kind(stream, 3)
        finish(known[JOBS[0].name], "done")
        watcher.ended(JOBS[0], known[JOBS[0].name], False)
        finish(known[JOBS[1].name], "failed", "it broke")
        watcher.ended(JOBS[1], known[JOBS[1].name], True)
        lines = stream.getvalue().splitlines()
        assert len(lines) == len(expected)
        assert all(line.startswith(start) for line, start in zip(lines, expected, strict=True))


def test_the_table_has_running_jobs_first_their_steps_and_what_is_left() -> None:
    known, now = states(), [100.0]
    console = Console(file=io.StringIO(), width=120, force_terminal=True)
    table = Table(console, JOBS, known, clock=lambda: now[0])
    table.started(JOBS[0], known[JOBS[0].name])
    finish(known[JOBS[0].name], "done")
    now[0] = 110.0
    table.ended(JOBS[0], known[JOBS[0].name], False)
    known[JOBS[1].name].status = "running"
    table.started(JOBS[1], known[JOBS[1].name])
    table.moved(JOBS[1], "denoise 3/16")
    now[0] = 114.0
    shown = Console(file=io.StringIO(), width=120)
    shown.print(table.render())
    text = shown.file.getvalue()  # type: ignore[attr-defined]
    rows = text.splitlines()
    assert rows[0].split() == ["job", "state", "device", "time", "prompt", "seed"]
    assert rows[1].startswith("2")
    assert "denoise 3/16" in rows[1]
    assert "4.00 s" in rows[1]
    assert rows[2].startswith("1")
    assert "a [red]cat[/red] b" in rows[2]  # a prompt is no markup
    assert "1 done, 1 running, 1 pending; 14.0 s, about 28.0 s left" in rows[3]
    table.close()


def test_a_pipe_gets_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    assert type(find_watcher(io.StringIO(), JOBS, states())) is Lines
    assert type(find_watcher(io.StringIO(), JOBS, states(), quiet=True)) is Quiet
