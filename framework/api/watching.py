"""Sinks that turn a run's events into what Python gets back. torch and numpy inside functions only."""

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from framework.api.results import Form, Interval, IntervalKind, MemoryPoint, Output, Timeline
from framework.outputs.frames import to_pictures
from framework.outputs.hashing import frames_sha256
from framework.runtime import events
from framework.tracing.spans import Span
from framework.values import Frames

StepCallback = Callable[[events.StepDone], object]
EventCallback = Callable[[events.Event], object]


class TimelineSink:
    """Keeps when everything began and ended."""

    def __init__(self, clock: Callable[[], float] = time.perf_counter) -> None:
        self._clock, self._start = clock, clock()
        self._intervals: list[Interval] = []
        self._memory: list[MemoryPoint] = []
        self._moved: dict[str, int] = {}
        self._began: dict[Any, float] = {}
        self.notes: list[str] = []
        self.seconds = 0.0

    def timeline(self, trace: tuple[Span, ...] = ()) -> Timeline:
        """Return what was heard so far."""
        return Timeline(
            intervals=tuple(self._intervals), memory=tuple(self._memory), moved_bytes=dict(self._moved), trace=trace
        )

    def __call__(self, event: events.Event) -> None:
        now = self._clock() - self._start
        match event:
            case events.ComponentLoading(component=component):
                self._began["load", component] = now
            case events.ComponentLoaded(component=component):
                self._add("load", component, self._began.pop(("load", component), now), now)
            case events.RequestStarted(index=index):
                self._began["request", index] = now
            case events.StageStarted(stage=stage):
                self._began["stage"] = self._began["step"] = now
            case events.StepDone(request=request, stage=stage, step=step):
                self._add("step", f"step {step}", self._began.get("step", now), now, request=request, stage=stage)
                self._began["step"] = now
            case events.StageFinished(request=request, stage=stage, device_peak_bytes=peak):
                started = self._began.pop("stage", now)
                self._add("stage", stage, started, now, request=request, stage=stage, device_peak_bytes=peak)
            case events.UseStarted(component=component, phase=phase):
                self._began["use", component, phase] = now
            case events.UseFinished(request=request, stage=stage, component=component, phase=phase):
                started = self._began.pop(("use", component, phase), now)
                self._add("use", component, started, now, request=request, stage=stage, phase=phase)
            case events.MemorySampled():
                self._memory.append(MemoryPoint(at_s=now, memory=event))
            case events.MemoryMeasured(moved_bytes=moved):
                for component, ways in moved.items():
                    self._moved[component] = self._moved.get(component, 0) + ways.get("h2d", 0)
            case events.RequestFinished(index=index):
                started = self._began.pop(("request", index), now)
                self._add("request", f"request {index + 1}", started, now, request=index)
            case events.Note(text=text):
                self.notes.append(text)
            case events.RunFinished():
                self.seconds = now

    def _add(self, kind: IntervalKind, name: str, start_s: float, end_s: float, **more: Any) -> None:
        self._intervals.append(Interval(kind=kind, name=name, start_s=start_s, end_s=end_s, **more))


@dataclass(slots=True)
class Collector:
    """A writer that keeps frames in memory, in the form that is wanted, and tells the bus of their hash."""

    form: Form
    bus: events.EventBus
    seeds: dict[int, tuple[int, ...]] = field(default_factory=dict)
    outputs: list[Output] = field(default_factory=list)

    def __call__(self, event: events.Event) -> None:
        """Hear which seeds a request has."""
        if isinstance(event, events.RequestStarted):
            self.seeds[event.index] = event.seeds

    def save(self, frames: Frames, request_index: int) -> None:
        seeds = self.seeds.get(request_index, ())
        for number in range(frames.data.shape[0]):
            own = Frames(frames.data[number : number + 1], frames.fps)
            seed = seeds[number] if number < len(seeds) else None
            shared: dict[str, Any] = {"request": request_index, "seed": seed, "fps": frames.fps}
            sha256 = frames_sha256(own)
            self.outputs.append(Output(frames_sha256=sha256, **shared, **_formed(own, self.form)))
            self.bus.emit(events.OutputSaved(request_index, f"(in memory, output {number})", sha256, sha256))


@dataclass(slots=True)
class SavedFiles:
    """A sink that collects the files of a run folder as outputs; sheets are none."""

    seeds: dict[int, tuple[int, ...]] = field(default_factory=dict)
    outputs: list[Output] = field(default_factory=list)

    def __call__(self, event: events.Event) -> None:
        if isinstance(event, events.RequestStarted):
            self.seeds[event.index] = event.seeds
        if isinstance(event, events.OutputSaved) and event.frames_sha256 is not None:
            path = Path(event.path)
            if not path.name.startswith("sheet"):
                number = sum(output.request == event.request for output in self.outputs)
                seeds = self.seeds.get(event.request, ())
                seed = seeds[number] if number < len(seeds) else None
                found = Output(request=event.request, seed=seed, frames_sha256=event.frames_sha256, path=path)
                self.outputs.append(found)


def _formed(frames: Frames, form: Form) -> dict[str, Any]:
    if form == "images":
        from PIL.Image import fromarray

        return {"images": tuple(fromarray(picture) for picture in to_pictures(frames))}
    return {"array": frames.data[0].detach().float().cpu().numpy()}
