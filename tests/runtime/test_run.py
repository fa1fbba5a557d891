"""A whole run from a spec: digits makes frames through the scheduler, with an event for everything."""

from typing import Any

import pytest
import spec_builders
from spec_builders import Recorder, request, run_spec

from framework.errors import ConfigError, StageError
from framework.graph import build_graph
from framework.runtime import events
from framework.runtime.run import execute
from stages.families.wan import WanFamily


def run_digits(recorder: Recorder) -> Any:
    spec = spec_builders.pipeline("digits", lambda name: None)
    graph = build_graph(spec)
    wanted = request(prompt="a three moving left", negative_prompt=None, max_sequence_length=16)
    return execute(run_spec(spec, wanted), graph, events.EventBus(recorder), keep=("frames",))


def test_digits_makes_frames_and_says_what_happens(one_thread: None) -> None:
    recorder = Recorder()
    result = run_digits(recorder)
    frames = result.requests[0].values["frames"]
    assert tuple(frames.data.shape) == (1, 9, 32, 32, 3)
    assert 0 <= float(frames.data.min()) < float(frames.data.max()) <= 1
    assert [type(event).__name__ for event in recorder.events[:3]] == [
        "RunStarted",
        "ComponentLoading",
        "ComponentLoaded",
    ]
    assert {event.component for event in recorder.of(events.ComponentLoaded)} == set(spec_builders.GROUPS)
    assert [event.step for event in recorder.of(events.StepDone)] == [1, 2, 3]
    assert [event.stage for event in recorder.of(events.StageFinished)] == list(spec_builders.STANDARD_KINDS)
    assert recorder.events[-1] == recorder.of(events.RunFinished)[0]
    assert recorder.events[-1].status == "done"


def test_a_failed_run_says_so_in_one_line(one_thread: None, monkeypatch: pytest.MonkeyPatch) -> None:
    recorder = Recorder()
    monkeypatch.setattr(WanFamily, "decode", lambda *_: 1 / 0)
    with pytest.raises(StageError, match="ZeroDivisionError"):
        run_digits(recorder)
    finished = recorder.of(events.RunFinished)[0]
    assert finished.status == "failed"
    assert finished.error == "stage 'decode' failed: ZeroDivisionError: division by zero"


def test_a_generator_of_another_device_is_refused_before_loading() -> None:
    recorder = Recorder()
    spec = spec_builders.pipeline("digits", lambda name: None)
    with pytest.raises(
        ConfigError, match=r"request\.generator_device: this run computes on cpu, and 'cuda:0' is another"
    ):
        execute(run_spec(spec, request(generator_device="cuda:0")), build_graph(spec), events.EventBus(recorder))
    assert [event.status for event in recorder.of(events.RunFinished)] == ["refused"]
    assert not recorder.of(events.ComponentLoading)
