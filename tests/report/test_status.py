"""What a line says of right now: pace, component, memory and waiting; levels; the notebook's moving line. No torch."""

import io

import pytest

from framework.report.lines import PlainLines
from framework.report.progress import NotebookProgress, PipedProgress, find_progress
from framework.report.status import Status
from framework.runtime import events

MIB = 2**20
MEMORY = events.MemorySampled(0, 3 * MIB, 8 * MIB, 5 * MIB, {"dit": MIB})


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def loop(sink: object, clock: Clock, steps: int = 4) -> None:
    sink(events.StageStarted(0, "denoise", "denoise", 0, 1))  # type: ignore[operator]
    sink(events.UseStarted(0, "denoise", "dit", None, 0.0))  # type: ignore[operator]
    sink(MEMORY)  # type: ignore[operator]
    for step in range(1, steps + 1):
        clock.now += 2.0
        sink(events.StepDone(0, "denoise", step, 10))  # type: ignore[operator]


def test_pace_and_place_are_known_while_a_loop_runs() -> None:
    clock = Clock()
    status = Status(6 * MIB, clock)
    assert (status.pace(), status.place()) == ("", "")
    loop(status, clock)
    assert status.pace() == "2.0 s/step, 12.0 s left"
    status(events.StallMeasured(0, "encode", 4.0, 1.0))
    assert status.place() == "dit; device 3.0 MiB of 8.0 MiB, planned 6.0 MiB; host 5.0 MiB; waiting 25 %"
    status(events.UseFinished(0, "denoise", "dit", None, 1.0))
    assert not status.place().startswith("dit")


def test_what_the_run_plans_stands_beside_what_is_there() -> None:
    clock = Clock()
    status = Status(clock=clock)
    stages = [{"stage": "denoise", "seconds": 4.0, "device_peak_bytes": 6 * MIB}]
    status(events.PlanMade({"stages": stages, "peak_bytes": 7 * MIB, "host_bytes": 2 * MIB}, ()))
    loop(status, clock)
    assert status.place() == "dit; device 3.0 MiB of 8.0 MiB, planned 7.0 MiB; host 5.0 MiB, planned 2.0 MiB of weights"


def test_the_first_step_does_not_count_the_time_of_other_stages() -> None:
    clock = Clock()
    status = Status(clock=clock)
    clock.now = 100.0
    loop(status, clock, steps=1)
    assert status.seconds_a_step == 2.0


def test_a_line_of_a_step_says_pace_and_place() -> None:
    clock, stream = Clock(), io.StringIO()
    loop(PlainLines(stream, clock=clock, planned_bytes=6 * MIB), clock)
    last = stream.getvalue().splitlines()[-1]
    assert last.endswith(
        "denoise: step 4 of 10; 2.0 s/step, 12.0 s left; dit; device 3.0 MiB of 8.0 MiB, planned 6.0 MiB; host 5.0 MiB"
    )


@pytest.mark.parametrize(
    ("level", "words"),
    [
        ("debug", ["use of dit began", "use of dit ended", "step 1", "note: n", "run failed"]),
        ("info", ["step 1", "note: n", "run failed"]),
        ("warning", ["note: n", "run failed"]),
        ("error", ["run failed"]),
    ],
)
def test_a_level_leaves_out_what_is_below_it(level: str, words: list[str]) -> None:
    stream = io.StringIO()
    sink = PlainLines(stream, level=level)
    sink(events.UseStarted(0, "denoise", "dit", None, 0.0))
    sink(events.UseFinished(0, "denoise", "dit", None, 0.0))
    sink(events.StepDone(0, "denoise", 1, 1))
    sink(events.Note("n"))
    sink(events.RunFinished("failed", 1.0))
    lines = stream.getvalue().splitlines()
    assert len(lines) == len(words)
    assert all(word in line for word, line in zip(words, lines, strict=True))


def test_a_notebook_has_one_line_that_moves(monkeypatch: pytest.MonkeyPatch) -> None:
    stream = io.StringIO()
    monkeypatch.setitem(__import__("sys").modules, "ipykernel", object())
    sink = find_progress(stream)
    assert isinstance(sink, NotebookProgress)
    for step in range(1, 4):
        sink(events.StepDone(0, "denoise", step, 3))
    sink(events.Note("done"))
    sink.close()
    text = stream.getvalue()
    assert text.count("\n") == 2
    assert text.splitlines()[0].count("\r") <= 1 or "\r" in text
    assert text.index("step 3 of 3") < text.index("note: done")


def test_a_pipe_outside_a_notebook_has_plain_lines() -> None:
    assert isinstance(find_progress(io.StringIO()), PipedProgress)
