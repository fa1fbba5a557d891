"""Device memory that runs out in mid-run: something is given up, the call is made again, the frames are equal."""

from collections.abc import Callable
from typing import Any

import pytest
import spec_builders
import torch
from spec_builders import Recorder, request, run_spec

from framework.errors import StageError
from framework.graph import build_graph
from framework.memory.host_budget import HostMemory
from framework.memory.pin_ledger import GIB
from framework.platforms.sim.testing import assert_idle
from framework.platforms.sim.testing import sim as sim
from framework.platforms.sim.world import World
from framework.runtime import events
from framework.runtime.artifacts import Artifacts
from framework.runtime.run import execute
from framework.runtime.sharing import MIB
from framework.spec import RecoverSpec

NAMES = ("text_encoder", "transformer", "transformer_2", "vae")
NUM_STEPS = 4
OFF_CPU = {"config": {"hardware": None}, "device": "sim"}


class Watched:
    """One run of digits on the simulated device; `at_step` may change the machine after a step."""

    def __init__(
        self, world: World, mode: str, at_step: Callable[[int], None] = lambda step: None, **options: Any
    ) -> None:
        self.world, self.recorder, self.at_step = world, Recorder(), at_step
        self.artifacts = options.pop("artifacts", None)
        pipeline = spec_builders.pipeline("digits", lambda name: None)
        wanted = request(prompt="a three", max_sequence_length=16, num_inference_steps=NUM_STEPS)
        self.spec = run_spec(pipeline, wanted, modes=dict.fromkeys(NAMES, mode), **OFF_CPU, **options)
        self.graph = build_graph(pipeline)

    def frames(self) -> torch.Tensor:
        bus = events.EventBus(self.recorder, self._watch)
        kept = self.artifacts and Artifacts(self.artifacts, self.spec, self.graph, bus)
        result = execute(self.spec, self.graph, bus, keep=("frames",), artifacts=kept)
        self.steps = [event.step for event in self.recorder.of(events.StepDone)]
        self.notes = [event.text for event in self.recorder.of(events.Note)]
        found: torch.Tensor = result.requests[0].values["frames"].data
        return found

    def _watch(self, event: events.Event) -> None:
        if isinstance(event, events.StepDone):
            self.at_step(event.step)

    def end(self) -> None:
        self.recorder.events.clear()
        assert_idle(self.world)


@pytest.fixture(scope="module")
def expected(one_thread: None) -> torch.Tensor:
    pipeline = spec_builders.pipeline("digits", lambda name: None)
    wanted = request(prompt="a three", max_sequence_length=16, num_inference_steps=NUM_STEPS)
    result = execute(run_spec(pipeline, wanted), build_graph(pipeline), events.EventBus(), keep=("frames",))
    found: torch.Tensor = result.requests[0].values["frames"].data
    return found


def shrink_to(world: World, share: float) -> Callable[[int], None]:
    def after(step: int) -> None:
        ledger = world.devices[0].ledger
        if step == 2:
            ledger.capacity_bytes = int(ledger.peak_bytes * share)

    return after


@pytest.mark.parametrize(("share", "notches"), [pytest.param(0.9, 1, marks=pytest.mark.slow), (0.45, 3)])
def test_on_a_card_that_shrinks_in_mid_run_the_frames_are_equal(
    share: float, notches: int, sim: World, expected: torch.Tensor, tmp_path: Any
) -> None:
    run = Watched(sim, "resident", shrink_to(sim, share), artifacts=tmp_path, recover=RecoverSpec(max_notches=6))
    assert torch.equal(run.frames(), expected)
    assert run.steps == [1, 2, 3, 4], "the loop went on after the step before"
    said = next(note for note in run.notes if note.startswith("out of device memory"))
    assert said.count("component-offload gave back") == notches
    assert "before a run: component_residency.vae=component-offload" in said
    run.end()


def test_a_call_that_fails_once_is_made_again_and_nothing_is_placed_anew_for_what_was_idle(
    sim: World, expected: torch.Tensor
) -> None:
    def after(step: int) -> None:
        if step == 1:
            sim.faults.fail_allocation(40)

    run = Watched(sim, "component-offload", after)
    assert torch.equal(run.frames(), expected)
    assert any("; repeated, " in note for note in run.notes)
    run.end()


def test_at_most_so_many_notches_and_then_the_error_says_all_there_is_to_say(sim: World) -> None:
    run = Watched(sim, "resident", shrink_to(sim, 0.45), recover=RecoverSpec(max_notches=1))
    with pytest.raises(StageError, match=r"stage 'denoise' failed in step \d of 4.*SimOOM") as caught:
        run.frames()
    notes = "\n".join(caught.value.__notes__)
    assert "device memory: " in notes
    assert "transformer_2 (resident, idle): 3.7 MiB of weights; planned 3.7 in a use, 3.7 between" in notes
    assert "tried: vae: resident -> component-offload gave back 1.4 MiB" in notes
    assert "to change: component_residency.text_encoder=component-offload (recover.max_notches=1 is reached)" in notes


def test_off_means_off(sim: World) -> None:
    run = Watched(sim, "resident", shrink_to(sim, 0.9), recover=None)
    with pytest.raises(StageError, match="SimOOM") as caught:
        run.frames()
    assert any("(recover is off)" in note for note in caught.value.__notes__)
    assert sim.devices[0].ledger.capacity_bytes < sim.capacity_bytes


def test_a_failure_inside_a_component_names_its_layer(sim: World) -> None:
    def after(step: int) -> None:
        if step == 2:
            sim.faults.fail_allocation(60)

    run = Watched(sim, "layerwise-offload", after, recover=None)
    with pytest.raises(StageError, match=r"in step 3 of 4 in component 'transformer_2', layer '[a-z_0-9.]+'"):
        run.frames()


def test_numerics_change_only_where_that_is_allowed(sim: World) -> None:
    from framework.runtime.recovery import Recovery

    class Vae(torch.nn.Module):
        use_tiling = False

        def enable_tiling(self) -> None:
            self.use_tiling = True

    run, vae, heard = Watched(sim, "resident"), Vae(), Recorder()
    from framework.memory.resources import make_resources
    from framework.platforms import make_platform
    from framework.runtime.placed import Placed

    placed = Placed({}, make_resources(make_platform("sim")))
    nothing_left = lambda *_: None  # noqa: E731
    for allowed in (False, True):
        spec = RecoverSpec(allow_numerics=allowed)
        recovery = Recovery(spec, placed, lambda: {"vae": vae}, events.EventBus(heard), order=nothing_left)
        recovery._freed = True
        assert recovery.make_room("vae", {"vae"}) is allowed
        assert vae.use_tiling is allowed
    recovery.succeeded("'vae'", 0.5)
    assert "which changes the picture (numerics.vae_tiling=true)" in heard.of(events.Note)[0].text
    run.end()


@pytest.mark.parametrize("mode", [pytest.param("component-offload", marks=pytest.mark.slow), "layerwise-offload"])
def test_a_host_that_runs_short_gets_its_pins_back(
    mode: str, sim: World, expected: torch.Tensor, monkeypatch: pytest.MonkeyPatch
) -> None:
    from framework.memory import host_store

    short = [False]
    monkeypatch.setattr("framework.memory.resources.read_host_memory", lambda: HostMemory(64 * GIB, 64 * GIB))
    plain = host_store.HostStore.__init__

    def with_memory(self: Any, *args: Any, **kwargs: Any) -> None:
        plain(self, *args, **{**kwargs, "memory": lambda: HostMemory(64 * GIB, 0 if short[0] else 64 * GIB)})

    monkeypatch.setattr(host_store.HostStore, "__init__", with_memory)
    pinned: list[int] = []

    def after(step: int) -> None:
        pinned.append(sim.pinned.live_bytes)
        short[0] = True

    run = Watched(sim, mode, after)
    assert torch.equal(run.frames(), expected)
    said = next(note for note in run.notes if note.startswith("the host runs short of memory"))
    assert "text_encoder" in said
    run.end()


def test_a_driver_that_spills_is_reported_once_with_what_to_write(sim: World, expected: torch.Tensor) -> None:
    ledger = sim.devices[0].ledger
    ledger.capacity_bytes, ledger.spills = 10 * MIB, True  # of weights 9, with activations 11
    run = Watched(sim, "resident")
    assert torch.equal(run.frames(), expected)
    (said,) = [note for note in run.notes if note.startswith("the driver spills")]
    assert "10 MiB were free when the run began" in said
    assert "budget.device=10MiB" in said


def test_what_another_program_gives_back_is_no_spilling() -> None:
    from framework.platforms.protocol import MemoryFigures
    from framework.runtime.spilling import SpillWatch

    class Card:
        unified = False
        resources = property(lambda self: self)
        platform = property(lambda self: self)
        capacity_bytes, peak_bytes, free = 100, 150, 0

        def memory(self) -> MemoryFigures:
            return MemoryFigures(total_bytes=400, free_bytes=self.free, allocated_bytes=90, peak_bytes=150)

    card: Any = Card()
    card.free, heard = 200, Recorder()
    watch = SpillWatch(card, events.EventBus(heard))
    watch.look()
    assert not heard.events
    card.free = 0
    watch.look()
    watch.look()
    assert len(heard.events) == 1
