"""Collects the spans of one run: from its events, from hooks on layers and from a traced platform. Imports torch.

Compute is cut into sections, one for each layer or whatever runs outside one: a stamp on the compute stream ends a
section and begins the next. Stamps are read when a stage ends, and only those that the device has reached.
"""

from collections import deque
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from torch import Tensor, nn

from framework.memory.hooks import uncompiled
from framework.platforms.protocol import EventHandle, Platform, StreamHandle
from framework.runtime import events
from framework.tracing.clocks import HostClock, SimClock, Stamp, TraceClock, make_clock
from framework.tracing.platform import TracedPlatform
from framework.tracing.ranges import Ranges
from framework.tracing.spans import COMPUTE, COPY, HOST, MOVE, READER, STAGES, STALL, USES, WAIT, WORK, Interval, Span

MAX_CAUSES = 256  # events that may still be waited for
OUTER = {"request": -3, "stage": -2, "step": -1}  # spans of one length: the outer one comes first
MIN_WAIT_S = 1e-7  # shorter ones are the clock's own
Label = tuple[str | None, str | None]  # component, layer
Pending = tuple[Stamp, Stamp, dict[str, Any]]
Copied = tuple[Stamp, Stamp, int, bool, Label, str | None, int | None]
Section = tuple[Stamp, Stamp, str, Label, str | None, int | None]


class Tracer:
    """A sink of run events that also watches a platform and the layers of components; `spans` has what is done.

    Make it, subscribe it, give it to `execute`; after the run call `finish`.
    """

    def __init__(self, bus: events.EventBus | None = None, *, keeps: bool = True, ranges: bool = False) -> None:
        """`bus` is told after each stage how much of it was waiting. `keeps` False: collect no spans.

        `ranges`: mark stages, uses and layers for profilers of NVIDIA, too.
        """
        self.spans: list[Span] = []
        self._bus = bus
        self.clock: TraceClock = HostClock()  # until the platform is known
        self._keeps, self._ranges = keeps, Ranges() if ranges else None
        self._platform: Platform | None = None
        self._traced: TracedPlatform | None = None
        self._compute: StreamHandle = None
        self._labels: dict[str, Any] = {}
        self._pending: deque[Pending] = deque()
        self._section: tuple[Stamp, Label] | None = None
        self._sections: list[Section] = []
        self._copies: list[Copied] = []
        self._waited_for: Label | None = None
        self._stack: list[Label] = []
        self._causes: dict[int, tuple[EventHandle, Label]] = {}
        self._last_copy: Label = (None, None)
        self._open: dict[Any, Any] = {}
        self._first_move = self._told = 0
        self._kernels: list[Interval] | None = None
        self.window: Interval | None = None

    # The platform

    def watch(self, platform: Platform) -> Platform:
        """Return `platform` as it is to be used in the run; one that is traced already changes its tracer."""
        inner = platform.inner if isinstance(platform, TracedPlatform) else platform
        if self._ranges is not None and not self._ranges.start(inner.kind) and self._bus is not None:
            self._bus.emit(events.Note(f"log.nvtx: no effect on {inner.kind}, which has no such ranges"))
        if not self._keeps:
            return platform
        self._platform, self._compute = inner, inner.current_stream()
        self.clock = make_clock(inner)
        if isinstance(self.clock, SimClock):
            self._first_move = len(inner.world.moves)  # type: ignore[attr-defined]
        self._traced = platform if isinstance(platform, TracedPlatform) else TracedPlatform(inner, self)
        self._traced.tracer = self
        return self._traced

    def mark(self, labels: Mapping[str, Any]) -> None:
        self._labels.update(labels)

    def before_copy(self, stream: StreamHandle) -> Stamp:
        return None if self.clock.virtual else self.clock.stamp(stream)

    def after_copy(self, stream: StreamHandle, before: Stamp, dst: Tensor, src: Tensor) -> None:
        """A copy was put on `stream`; sim keeps a log of its own, which `finish` reads."""
        labels = self._labels
        self._last_copy = (labels.get("component"), labels.get("layer"))
        if not self.clock.virtual:
            where = (self._last_copy, labels.get("stage"), labels.get("step"))
            self._copies.append((before, self.clock.stamp(stream), dst.nbytes, not src.is_cpu, *where))

    def recorded(self, event: EventHandle, stream: StreamHandle) -> None:
        if stream is not self._compute and stream != self._compute:
            self._causes[id(event)] = (event, self._last_copy)
            if len(self._causes) > MAX_CAUSES:
                del self._causes[next(iter(self._causes))]

    def before_wait(self, stream: StreamHandle, event: EventHandle) -> Label | None:
        """Compute is about to wait for a copy: end its section. None: it is not compute that waits."""
        known = self._causes.get(id(event))
        if known is None or self._section is None or stream != self._compute:
            return None
        self._cut(None)
        return known[1]

    def after_wait(self, stream: StreamHandle, cause: Label | None) -> None:
        if cause is None or self._section is None:
            return
        began, label = self._section
        stamp = self.clock.stamp(self._compute)
        self._sections.append((began, stamp, STALL, cause, self._stage, self._labels.get("step")))
        self._section = (stamp, label)
        self._waited_for = cause

    def host_waited(self, started_s: float) -> None:
        ended_s = self.clock.host_s()
        if ended_s - started_s > MIN_WAIT_S and self._stage is not None:
            where = self._where(self._labels.get("component"), self._labels.get("layer"))
            name = f"waits for copies of {where['component'] or 'the device'}"
            self.spans.append(Span(track=HOST, kind=WAIT, name=name, start_s=started_s, end_s=ended_s, **where))

    # The layers

    @contextmanager
    def layers(
        self, modules: Mapping[str, nn.Module], paths: Mapping[str, tuple[str, ...]], compiled: bool = False
    ) -> Iterator[None]:
        """In this block the calls of components and of the layers under `paths` (by component) are told apart.

        `compiled`: some of them are, so that hooks have to be kept out of that, which costs some microseconds each.
        """
        handles = []
        for label, module in labelled(modules, paths):
            enter, leave = self._entering(label), self._leaving
            before, after = (uncompiled(enter), uncompiled(leave)) if compiled else (enter, leave)
            handles.append(module.register_forward_pre_hook(before))
            handles.append(module.register_forward_hook(after, always_call=True))
        try:
            yield
        finally:
            for handle in handles:
                handle.remove()

    def _entering(self, label: Label) -> Callable[..., None]:
        def enter(*_: Any) -> None:
            if self._ranges is not None:
                self._ranges.push(_name(label))
            self._stack.append(label)
            self._cut(label)

        return enter

    def _leaving(self, *_: Any) -> None:
        if self._ranges is not None:
            self._ranges.pop()
        if self._stack:
            self._stack.pop()
        self._cut(self._stack[-1] if self._stack else None)

    def _cut(self, label: Label | None) -> None:
        """End the section that runs and begin the next."""
        if self._section is None:
            return
        began, running = self._section
        following = label if label is not None else self._stack[-1] if self._stack else (None, None)
        waited_for, self._waited_for = self._waited_for, None
        if label is not None and label == waited_for:  # the layer's own wait was just before: nothing ran since
            self._section = (began, following)
            return
        now = self.clock.stamp(self._compute)
        self._sections.append((began, now, WORK, running, self._stage, self._labels.get("step")))
        self._section = (now, following)

    # The events

    def __call__(self, event: events.Event) -> None:
        if self._ranges is not None:
            self._ranges(event)
        if self._platform is None:
            return
        match event:
            case events.StepDone():
                self._close("step", STAGES, "step", f"step {event.step}", step=event.step)
                self._open["step"] = self.clock.stamp(self._compute)
            case events.ComponentLoading(component=component):
                self._open["load", component] = self.clock.host_s()
            case events.ComponentLoaded(component=component):
                self._loaded(event)
            case events.RequestStarted():
                self.window = (self._now_s(), self.window[1] if self.window else self._now_s())
                self._open["request"] = self.clock.stamp(self._compute)
            case events.StageStarted(stage=stage):
                self._labels["stage"] = stage
                self._open["stage"] = self._open["step"] = self.clock.stamp(self._compute)
                self._stack.clear()
                self._section = (self._open["stage"], (None, None))
            case events.UseStarted(component=component):
                self._open["use", component] = self.clock.stamp(self._compute)
            case events.UseFinished(component=component, phase=phase):
                name = component if phase is None else f"{component} ({phase})"
                self._close(("use", component), USES, "use", name, component=component)
            case events.StageFinished():
                self._cut(None)
                self._section = None
                self._close("stage", STAGES, "stage", event.stage)
                self._labels["stage"] = None
                self._resolve()
                self._tell_stalls(event)
            case events.RequestFinished(index=index):
                self._close("request", STAGES, "request", f"request {index + 1}")
                self.window = (self.window[0] if self.window else 0.0, self._now_s())

    def finish(self) -> None:
        """Read what is left, once the run is over; the device may be waited for now."""
        if self._platform is None:
            return
        if self._section is not None:  # a stage that failed
            self._cut(None)
            self._section = None
        if self._pending and not self.clock.virtual:
            self._platform.synchronize()
        self._resolve()
        if isinstance(self.clock, SimClock):
            self._kernels = list(self.clock.kernels())
            self._take_moves(self.clock)
            self.clock.stop()
        self.spans.sort(key=lambda span: (span.start_s, -span.end_s, OUTER.get(span.kind, 0)))
        ends = [span.end_s for span in self.spans if span.track in (STAGES, COMPUTE)]
        self._platform, self._pending = None, deque()
        if self._traced is not None:
            self._traced.tracer = None  # it may outlive this run, with the weights
        if self.window is not None and ends:
            self.window = (self.window[0], max(self.window[1], *ends))

    @property
    def kernels(self) -> list[Interval] | None:
        """When the device computed, kernel by kernel; None where only sections are known."""
        return self._kernels

    @property
    def virtual(self) -> bool:
        """Whether times are those of a simulated device."""
        return self.clock.virtual

    # Inside

    @property
    def _stage(self) -> str | None:
        stage: str | None = self._labels.get("stage")
        return stage

    def _now_s(self) -> float:
        now = self.clock.read_start(self.clock.stamp(self._compute)) if self.clock.virtual else None
        return self.clock.host_s() if now is None else now

    def _loaded(self, event: events.ComponentLoaded) -> None:
        started = self._open.pop(("load", event.component), None)
        if started is not None:
            name = f"loads {event.component}"
            spans = {"track": READER, "kind": "load", "component": event.component, "size_bytes": event.size_bytes}
            self.spans.append(Span(name=name, start_s=started, end_s=self.clock.host_s(), **spans))  # type: ignore[arg-type]

    def _tell_stalls(self, event: events.StageFinished) -> None:
        found = [span for span in self.spans[self._told :] if span.stage == event.stage]
        self._told = len(self.spans)
        seconds = sum(span.seconds for span in found if span.kind == "stage")
        stall_s = sum(span.seconds for span in found if span.kind == STALL)
        if self._bus is not None and seconds:
            self._bus.emit(events.StallMeasured(event.request, event.stage, seconds, stall_s))

    def _close(self, key: Any, track: str, kind: str, name: str, **more: Any) -> None:
        began = self._open.pop(key, None)
        if began is not None:
            values = {"track": track, "kind": kind, "name": name, "stage": self._stage, **more}
            self._add(began, self.clock.stamp(self._compute), **values)

    def _where(self, component: str | None, layer: str | None) -> dict[str, Any]:
        return {"component": component, "layer": layer, "stage": self._stage, "step": self._labels.get("step")}

    def _move(self, size_bytes: int, direction: str, labels: Mapping[str, Any]) -> dict[str, Any]:
        get = labels.get
        label = (get("component"), get("layer"))
        layer = None if label[1] is None else str(label[1])
        where = {"component": label[0], "layer": layer, "stage": get("stage"), "step": get("step")}
        name = _name(label) or ("values" if direction == "h2d" else "results")
        return {"track": COPY, "kind": MOVE, "name": name, "size_bytes": size_bytes, "direction": direction, **where}

    def _add(self, began: Stamp, ended: Stamp, **values: Any) -> None:
        self._pending.append((began, ended, values))

    def _resolve(self) -> None:
        """Turn what the device has reached into spans; stamps are done in their order on each stream."""
        for began, ended, kind, label, stage, step in self._sections:
            name = _name(label) or (stage or "?" if kind == WORK else "a copy")
            where = {"component": label[0], "layer": label[1], "stage": stage, "step": step}
            name = name if kind == WORK else f"waits for {name}"
            self._add(began, ended, track=COMPUTE, kind=kind, name=name, **where)
        self._sections.clear()
        for began, ended, size_bytes, comes_back, label, stage, step in self._copies:
            labels = {"component": label[0], "layer": label[1], "stage": stage, "step": step}
            self._add(began, ended, **self._move(size_bytes, "d2h" if comes_back else "h2d", labels))
        self._copies.clear()
        left: deque[Pending] = deque()
        for began, ended, values in self._pending:
            end = self.clock.read_end(ended)
            start = None if end is None else self.clock.read_start(began)
            if end is None or start is None:
                left.append((began, ended, values))
            elif end > start or values["track"] not in (COMPUTE, COPY):
                self.spans.append(Span(start_s=start, end_s=max(start, end), **values))
        self._pending = left

    def _take_moves(self, clock: SimClock) -> None:
        assert self._platform is not None
        for move in self._platform.world.moves[self._first_move :]:  # type: ignore[attr-defined]
            labels = {"component": move.component, "layer": move.layer, "stage": move.stage, "step": move.step}
            start, end = clock.since_start(move.start_s), clock.since_start(move.end_s)
            values = self._move(move.size_bytes, move.direction, labels)
            self.spans.append(Span(start_s=start, end_s=end, **values))


def labelled(
    modules: Mapping[str, nn.Module], paths: Mapping[str, tuple[str, ...]]
) -> Iterator[tuple[Label, nn.Module]]:
    """Give every component and each of its layers with its label; `paths` are block lists by component.

    Where there is no such list the parts take their place: a VAE's `decode` is no call of the VAE, but of its decoder.
    """
    for component, module in modules.items():
        yield (component, None), module
        if not paths.get(component):
            yield from (((component, name), part) for name, part in module.named_children())
        for path in paths.get(component, ()):
            try:
                stack = module.get_submodule(path)
            except AttributeError:  # the checkpoint has no such list
                continue
            for name, layer in stack.named_children():
                yield (component, f"{path}.{name}"), layer


def _name(label: Label) -> str:
    component, layer = label
    return f"{component}.{layer}" if component and layer is not None else component or ""
