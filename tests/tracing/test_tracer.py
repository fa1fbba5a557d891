"""A traced platform on the simulated device: moves and waits are exact, and without a tracer nothing is kept."""

from typing import Any

import pytest
import torch
from torch import nn

from framework.platforms.hardware import load_hardware
from framework.platforms.protocol import Platform
from framework.platforms.sim import SimPlatform, World, install, start
from framework.runtime import events
from framework.tracing.clocks import HostClock, Stamp
from framework.tracing.platform import TracedPlatform
from framework.tracing.ranges import Ranges
from framework.tracing.spans import COMPUTE, COPY, STAGES, STALL, WORK
from framework.tracing.stalls import StallMeter
from framework.tracing.summary import summarize
from framework.tracing.tracer import Tracer

SIZE = 1_200_000


@pytest.fixture
def platform() -> SimPlatform:
    install()
    start(World(load_hardware("rtx_4090")))
    return SimPlatform()


def run_one_copy(platform: Platform, tracer: Tracer | StallMeter) -> None:
    """One stage in which compute waits for one copy and then uses it."""
    copies = platform.make_stream("copy")
    memory = platform.reserve(SIZE)
    source = platform.allocate_pinned(SIZE)
    assert source is not None
    source.zero_()
    tracer(events.RequestStarted(0, 1, "a", (1,)))
    tracer(events.StageStarted(0, "denoise", "denoise", 0, 1))
    platform.mark(stage="denoise", component="dit", layer="blocks.0")
    platform.copy_async(memory, source, copies)
    platform.mark(component=None, layer=None)
    platform.wait_event(platform.current_stream(), platform.record_event(copies))
    memory.float().sum()
    tracer(events.StepDone(0, "denoise", 1, 1))
    tracer(events.StageFinished(0, "denoise", 1.0))
    tracer(events.RequestFinished(0, 1.0))


def test_a_copy_and_the_wait_for_it_take_exactly_what_the_bus_takes(platform: SimPlatform) -> None:
    tracer = Tracer()
    run_one_copy(tracer.watch(platform), tracer)
    tracer.finish()
    (move,) = [span for span in tracer.spans if span.track == COPY]
    (stall,) = [span for span in tracer.spans if span.kind == STALL]
    expected = SIZE / (platform.world.profile.h2d_pinned_gbps * 1e9)
    assert move.seconds == pytest.approx(expected, rel=1e-9)
    assert (move.size_bytes, move.component, move.layer, move.stage) == (SIZE, "dit", "blocks.0", "denoise")
    assert stall.end_s == pytest.approx(move.end_s, rel=1e-9)
    assert stall.seconds == pytest.approx(expected, rel=0.2)  # but for the launches before it
    assert summarize(tracer.spans, tracer.window, tracer.kernels, tracer.virtual).hidden_share == pytest.approx(
        0, abs=0.2
    )


def test_stages_steps_and_work_have_spans_of_their_own(platform: SimPlatform) -> None:
    heard: list[events.Event] = []
    tracer = Tracer(events.EventBus(heard.append))
    run_one_copy(tracer.watch(platform), tracer)
    tracer.finish()
    assert [span.name for span in tracer.spans if span.track == STAGES] == ["request 1", "denoise", "step 1"]
    work = [span for span in tracer.spans if span.track == COMPUTE and span.kind == WORK]
    assert {span.name for span in work} == {"denoise"}
    (told,) = [event for event in heard if isinstance(event, events.StallMeasured)]
    assert 0 < told.stall_s < told.seconds


def test_after_a_trace_the_platform_keeps_nothing(platform: SimPlatform) -> None:
    tracer = Tracer()
    traced = tracer.watch(platform)
    tracer.finish()
    assert isinstance(traced, TracedPlatform)
    assert isinstance(traced, Platform)
    assert traced.tracer is None
    assert platform.world.on_kernel is None
    traced.copy_async(traced.reserve(8), torch.zeros(8, dtype=torch.uint8), traced.make_stream("copy"))
    assert tracer.spans == []
    again = Tracer()
    assert again.watch(traced) is traced
    assert traced.tracer is again


class LateClock(HostClock):
    """A device that reaches its stamps only when the host waits for it, as a GPU may."""

    def __init__(self) -> None:
        super().__init__()
        self.reached = False

    def read_end(self, stamp: Stamp) -> float | None:
        return super().read_end(stamp) if self.reached else None


def test_stamps_that_the_device_has_not_reached_are_read_later_and_nothing_waits_for_them(
    platform: SimPlatform, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock, waited = LateClock(), []
    monkeypatch.setattr("framework.tracing.tracer.make_clock", lambda _: clock)
    tracer = Tracer()
    traced = tracer.watch(platform)
    monkeypatch.setattr(
        platform, "synchronize", lambda target=None: waited.append(target) or setattr(clock, "reached", True)
    )
    run_one_copy(traced, tracer)
    assert (tracer.spans, waited) == ([], [])
    tracer.finish()
    assert waited == [None]
    (move,) = [span for span in tracer.spans if span.track == COPY]
    assert (move.size_bytes, move.direction, move.component) == (SIZE, "h2d", "dit")
    assert {span.name for span in tracer.spans if span.track == STAGES} == {"request 1", "denoise", "step 1"}


def test_layers_are_told_apart_and_their_hooks_go_again(platform: SimPlatform) -> None:
    model = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4)).to("sim")
    whole = nn.ModuleDict({"blocks": model})
    whole.forward = lambda x: model(x)  # type: ignore[method-assign]
    tracer = Tracer()
    tracer.watch(platform)
    with tracer.layers({"dit": whole}, {"dit": ("blocks", "nothing.such")}):
        tracer(events.StageStarted(0, "denoise", "denoise", 0, 1))
        whole(torch.ones(1, 4, device="sim"))
        tracer(events.StageFinished(0, "denoise", 1.0))
    tracer.finish()
    names = [span.name for span in tracer.spans if span.track == COMPUTE]
    assert [name for name in names if name.startswith("dit.")] == ["dit.blocks.0", "dit.blocks.1"]
    assert not model[0]._forward_hooks
    assert not model[0]._forward_pre_hooks


def test_ranges_without_a_profiler_are_said_to_have_no_effect(platform: SimPlatform) -> None:
    heard: list[events.Event] = []
    tracer = Tracer(events.EventBus(heard.append), keeps=False, ranges=True)
    assert tracer.watch(platform) is platform
    assert "log.nvtx: no effect on sim" in str(heard[0])


def test_ranges_are_begun_and_ended_in_pairs(monkeypatch: pytest.MonkeyPatch) -> None:
    log: list[tuple[str, object]] = []

    class Nvtx:
        range_push = staticmethod(lambda name: log.append(("push", name)))
        range_pop = staticmethod(lambda: log.append(("pop", None)))
        range_start = staticmethod(lambda name: log.append(("start", name)) or name)
        range_end = staticmethod(lambda handle: log.append(("end", handle)))

    monkeypatch.setattr(torch.cuda, "nvtx", Nvtx)
    ranges = Ranges()
    assert ranges.start("cuda")
    ranges(events.StageStarted(0, "denoise", "denoise", 0, 1))
    ranges(events.UseStarted(0, "denoise", "dit", None, 0.0))
    ranges.push("dit.blocks.0")
    ranges.pop()
    ranges.pop()
    ranges(events.RunFinished("failed", 1.0))
    assert [entry for entry in log if entry[0] in ("push", "pop")] == [("push", "dit.blocks.0"), ("pop", None)]
    assert sorted(name for what, name in log if what == "end") == ["stage denoise", "use dit"]


def test_without_a_trace_the_waits_of_each_step_are_measured_too(platform: SimPlatform) -> None:
    heard: list[events.Event] = []
    meter = StallMeter(events.EventBus(heard.append))
    watched: Any = meter.watch(platform)
    run_one_copy(watched, meter)
    (told,) = [event for event in heard if isinstance(event, events.StallMeasured)]
    expected = SIZE / (platform.world.profile.h2d_pinned_gbps * 1e9)
    assert told.stall_s == pytest.approx(expected, rel=0.2)  # but for the launches before it
    assert told.stall_s < told.seconds
    meter.finish()
    assert watched.tracer is None
    assert platform.world.on_kernel is None


def test_a_meter_waits_for_nothing_and_tells_later(platform: SimPlatform, monkeypatch: pytest.MonkeyPatch) -> None:
    clock, heard = LateClock(), []
    monkeypatch.setattr("framework.tracing.stalls.make_clock", lambda _: clock)
    meter = StallMeter(events.EventBus(heard.append))
    run_one_copy(meter.watch(platform), meter)
    assert not heard
    clock.reached = True
    meter(events.StepDone(0, "denoise", 2, 2))
    assert len(heard) == 1
