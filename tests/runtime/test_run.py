"""A whole run from a spec: digits makes frames through the scheduler, with an event for everything."""

import spec_builders
from spec_builders import Recorder, request, run_spec

from framework.graph import build_graph
from framework.runtime import events
from framework.runtime.run import execute


def run_digits() -> tuple[object, Recorder]:
    spec = spec_builders.pipeline("digits", lambda name: None)
    recorder = Recorder()
    graph = build_graph(spec)
    wanted = request(prompt="a three moving left", negative_prompt=None, max_sequence_length=16)
    result = execute(run_spec(spec, wanted), graph, events.EventBus(recorder), keep=("frames",))
    return result, recorder


def test_digits_makes_frames_and_says_what_happens(one_thread: None) -> None:
    result, recorder = run_digits()
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
