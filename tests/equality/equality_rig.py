"""Runs a tiny pipeline under a plan on a fresh simulated machine, and watches memory while it runs. Imports torch.

Weights are loaded anew for each case, straight to their tier, as a real run does it.
"""

import gc
import weakref
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import spec_builders
import torch
import whole_builders
from equality_cases import Plan
from torch import Tensor

from framework.graph import Graph, build_graph
from framework.loading.load import load_store
from framework.memory.courier import Courier
from framework.memory.host_budget import HostMemory
from framework.memory.host_store import HostStore
from framework.memory.mapped_files import MappedFiles
from framework.memory.pin_ledger import GIB, PinLedger
from framework.memory.resources import Resources
from framework.platforms.sim.backend import install
from framework.platforms.sim.platform import SimPlatform
from framework.platforms.sim.testing import assert_idle
from framework.platforms.sim.world import World, start
from framework.runtime.events import Event, EventBus, MemoryMeasured, RequestFinished, UseFinished, UseStarted
from framework.runtime.placed import Placed
from framework.runtime.placing import place_all
from framework.runtime.scheduler import run_requests
from framework.runtime.sharing import ring_names
from framework.runtime.store import ComponentStore
from framework.spec import Knob, PipelineSpec, Placement, RequestSpec

AMPLE = HostMemory(64 * GIB, 64 * GIB)
SCARCE = HostMemory(GIB, GIB)
STAGING_BYTES = 4096
SCARCE_PIN_BYTES = 40_000
OTHER_SIZE = {"height": 64, "width": 32}
ONE_PASS = ("wan21_i2v", "flux2_klein")
"""Pipelines that run without guidance here; two passes a step are tried on Wan 2.2, Qwen-Image and Z-Image."""


@dataclass(frozen=True)
class Subject:
    """A pipeline with its requests: two alike, and a third of another size."""

    spec: PipelineSpec
    graph: Graph
    requests: tuple[RequestSpec, ...]


def subject(name: str, tiny_folder: Callable[[str], Path], picture: Callable[[], Path]) -> Subject:
    """Wan 2.2 goes through its stages, everything else is called as a whole."""
    if name == "wan22":
        spec = spec_builders.pipeline(name, tiny_folder)
        first = spec_builders.request(num_frames=5, num_inference_steps=2)  # a step for each expert
    else:
        spec = whole_builders.whole(tiny_folder(name), whole_builders.tiny_args(name))
        first = whole_builders.tiny_request(name, picture)
        first = replace(first, num_inference_steps=2, num_frames=first.num_frames and 5)  # two latent frames
        if name in ONE_PASS:
            first = replace(first, guidance_scale=1.0)
    second = replace(first, prompt="two dogs", seeds=(8,))
    return Subject(spec, build_graph(spec), (first, second, replace(second, seeds=(9,), **OTHER_SIZE)))


def placements(spec: PipelineSpec, plan: Plan) -> dict[str, Placement]:
    """All components in one mode, or a mixed plan: the denoisers streamed, the rest whole, and the other way round."""
    found = {}
    for name, component in spec.components.items():
        mode = plan.mode
        if mode in ("dit-layerwise", "dit-whole"):
            streamed = (component.group == "dit") == (mode == "dit-layerwise")
            mode = "layerwise-offload" if streamed else "component-offload"
        found[name] = Placement(
            component=name,
            group=component.group,
            mode=mode,
            prefetch=Knob(plan.prefetch),
            resident=Knob(plan.resident),
            policy=plan.policy,
            lifetime=plan.lifetime,
        )
    return found


class CountingPlatform(SimPlatform):
    """Knows how many bytes of reserved memory are held now."""

    def __init__(self) -> None:
        super().__init__()
        self.held_bytes = 0

    def reserve(self, size_bytes: int) -> Tensor:
        memory = super().reserve(size_bytes)
        self.held_bytes += size_bytes
        weakref.finalize(memory, self._forget, size_bytes).atexit = False
        return memory

    def _forget(self, size_bytes: int) -> None:
        self.held_bytes -= size_bytes


@dataclass
class Outcome:
    """What a run of several requests left to compare; bytes by component are those of the log of moves."""

    frames: list[Tensor] = field(default_factory=list)
    moved_bytes: Counter[str] = field(default_factory=Counter)
    counted_bytes: Counter[str] = field(default_factory=Counter)
    idle_bytes: list[int] = field(default_factory=list)
    peak_bytes: int = 0
    tiers: set[str] = field(default_factory=set)
    num_formulas: int = 0


class Rig:
    """One case: `run` it, then `close`, which asserts that the machine is idle and saw no race."""

    def __init__(
        self, wanted: Subject, plan: Plan, capacity_bytes: int | None = None, world: World | None = None
    ) -> None:
        self.subject, self.plan = wanted, plan
        install()
        self.world = world or start(World(capacity_bytes=capacity_bytes))
        self.platform = CountingPlatform()
        chosen = placements(wanted.spec, plan)
        self.placed = Placed(chosen, self._resources(chosen))
        self.outcome = Outcome()
        self.watchers: list[Callable[[Event], None]] = []
        self.store: ComponentStore | None = None

    def _resources(self, chosen: Mapping[str, Placement]) -> Resources:
        budget = {"pinned": None, "scarce": SCARCE_PIN_BYTES}.get(self.plan.tier, 0)
        memory = SCARCE if self.plan.tier == "mapped" else AMPLE
        store = HostStore(self.platform, PinLedger(AMPLE, budget), MappedFiles(), lambda: memory)
        groups = {name: component.group for name, component in self.subject.spec.components.items()}
        rings = ring_names(self.subject.graph, chosen, groups)
        return Resources(Courier(self.platform, STAGING_BYTES), store, ring_names=rings)

    def load(self) -> ComponentStore:
        """Load the weights to where the plan has them; nothing is trained, so nothing keeps gradients."""
        spec, graph = self.subject.spec, self.subject.graph
        bus = EventBus(self._watch)
        self.store = load_store(spec, graph, {}, bus, self.platform.device, place=self.placed.strategy)
        for module in self.store.modules().values():
            assert not any(parameter.requires_grad for parameter in module.parameters())
        self.world.moves.clear()
        return self.store

    def loaded(self) -> ComponentStore:
        return self.store or self.load()

    def make(self, *requests: RequestSpec) -> list[Tensor]:
        """Run requests on what is loaded, without recovery, and return their pictures: a plan fits or it fails."""
        store = self.loaded()
        spec = spec_builders.run_spec(self.subject.spec, *requests, recover=None)
        bus = EventBus(self._watch)
        result = run_requests(spec, self.subject.graph, store, bus, keep=("frames",), placed=self.placed)
        return [request.values["frames"].data for request in result.requests]

    def run(self, requests: tuple[RequestSpec, ...] | None = None) -> Outcome:
        """Load, make the subject's own requests or those given, and sum up."""
        self.outcome.frames = self.make(*(self.subject.requests if requests is None else requests))
        for move in self.world.moves:
            if move.component is not None:
                self.outcome.moved_bytes[move.component] += move.size_bytes
        self.outcome.tiers = {parcel.blob.tier for parcel in self._parcels()}
        return self.outcome

    def change(self, plan: Plan) -> None:
        """Begin another case on what is loaded already; only what is streamed how may differ."""
        assert (plan.mode, plan.tier) == (self.plan.mode, self.plan.tier), "loaded for another tier"
        tables = sum(self.placed.loose_bytes().values())  # what a model keeps for itself: the positions of Z-Image
        self.placed.close()
        assert self.world.devices[0].ledger.live_bytes == tables
        self.plan, self.outcome = plan, Outcome()
        self.placed.change(placements(self.subject.spec, plan))
        place_all(self.placed, self.loaded(), self.subject.graph)
        self.world.moves.clear()

    def close(self) -> None:
        self.placed.close()
        self.store = None
        self.placed.resources.courier.close()
        gc.collect()
        assert_idle(self.world)

    def travelling(self) -> set[str]:
        """Components with weights that come and go: all but those whose every byte has come for good."""
        return {parcel.component for parcel in self._parcels() if parcel.blob.tier != "device"}

    def _parcels(self) -> list[Any]:
        strategies = [built[1] for built in self.placed._built.values()]
        movers = [getattr(strategy, "_streamer", None) or getattr(strategy, "_mover", None) for strategy in strategies]
        return [parcel for mover in movers if mover is not None for parcel in mover.parcels()]

    def _watch(self, event: Event) -> None:
        for watcher in self.watchers:
            watcher(event)
        if isinstance(event, UseStarted | UseFinished):
            assert self.platform.held_bytes == self._formula_bytes(), event
            self.outcome.num_formulas += 1
        if isinstance(event, MemoryMeasured):
            self.outcome.peak_bytes = max(self.outcome.peak_bytes, event.device_peak_bytes or 0)
            for component, by_direction in event.moved_bytes.items():
                self.outcome.counted_bytes[component] += sum(by_direction.values())
        if isinstance(event, RequestFinished):
            self.outcome.idle_bytes.append(self.platform.held_bytes)

    def _formula_bytes(self) -> int:
        """What the plan holds now: whole components in use; rings, residents and what lies outside the layers."""
        total, rings = 0, {}
        for _, strategy in self.placed._built.values():
            mover, streamer = getattr(strategy, "_mover", None), getattr(strategy, "_streamer", None)
            if mover is not None and mover.started:
                total += mover.size_bytes
            if streamer is not None:
                total += streamer._rest.size_bytes
                ring = streamer._ring
                kept = streamer._keep and streamer in ring._users
                if streamer.active or kept:
                    rings[id(ring)] = ring.size_bytes
                if streamer.active or kept or streamer._permanent:
                    total += sum(held.parcel.size_bytes for held in streamer._residents)
        return total + sum(rings.values())


def same(one: list[Tensor], other: list[Tensor]) -> bool:
    return len(one) == len(other) and all(torch.equal(a, b) for a, b in zip(one, other, strict=True))


def check_case(rig: Rig, expected: list[Tensor]) -> None:
    """Run the three requests of a loaded plan and compare everything that has to agree."""
    outcome, tier = rig.run(), rig.plan.tier
    assert same(outcome.frames, expected), "another picture than with everything resident"
    assert not rig.world.races
    assert {"scarce": {"pinned", "pageable"}}.get(tier, {tier}) <= outcome.tiers, f"no weights are {tier}"
    assert set(outcome.moved_bytes) == rig.travelling(), "an offloaded component moved nothing"
    assert outcome.counted_bytes == outcome.moved_bytes, "the record counts other bytes than the log of moves"
    assert len(set(outcome.idle_bytes)) == 1, "a request left more weights on the device than the one before"
    assert outcome.num_formulas >= 2 * len(rig.placed.components())
