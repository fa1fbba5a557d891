"""Random layer graphs and random knobs: weights are real exactly while they are on the device and their copy is done.

Whether a copy is done is judged by `sim`: a kernel that is not ordered after the copy raises, and a weight that has not
arrived is NaN.
"""

import gc
from dataclasses import dataclass

import memory_builders as build
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from framework.memory.absent import Placeholder
from framework.memory.layerwise import attach_streamer
from framework.memory.pin_ledger import GIB
from framework.memory.policy import Knobs
from framework.memory.streamer import Streamer
from framework.platforms.sim.backend import install
from framework.platforms.sim.testing import assert_idle
from framework.platforms.sim.world import World, start

X = torch.linspace(-1, 1, 8).reshape(2, 4)
DTYPES = (torch.float32, torch.bfloat16, torch.float16)


@dataclass(frozen=True)
class Case:
    """A graph: per stack the inner widths; ties between layers; the calls of each pass; and how it is streamed."""

    stacks: list[list[int]]
    dtypes: list[int]
    tied: list[tuple[int, int]]
    shared_buffer: bool
    order: list[list[int]]
    prefetch: int
    resident: int
    resident_bytes: int | None
    policy: str
    park: bool
    pins: bool
    lifetime: str


@st.composite
def cases(draw: st.DrawFn) -> Case:
    stacks = draw(st.lists(st.lists(st.integers(1, 40), min_size=1, max_size=5), min_size=1, max_size=3))
    count = sum(map(len, stacks))
    layer = st.integers(0, count - 1)
    return Case(
        stacks,
        draw(st.lists(st.integers(0, 2), min_size=count, max_size=count)),
        draw(st.lists(st.tuples(layer, layer), max_size=2)),
        draw(st.booleans()),
        draw(st.lists(st.lists(layer, min_size=1, max_size=8), min_size=1, max_size=3)),
        draw(st.sampled_from([0, 1, 2, 3, 20])),
        draw(st.sampled_from([0, 1, 2, 20])),
        draw(st.one_of(st.none(), st.none(), st.integers(0, 4000))),
        draw(st.sampled_from(["leading", "strided"])),
        draw(st.booleans()),
        draw(st.booleans()),
        draw(st.sampled_from(["use", "retained"])),
    )


class Inner(nn.Module):
    """A layer with a list inside, to tell its lists from the streamed ones."""

    def __init__(self, inner: int, dtype: torch.dtype) -> None:
        super().__init__()
        self.blocks = nn.ModuleList([nn.Linear(4, inner, dtype=dtype), nn.Linear(inner, 4, dtype=torch.float32)])
        self.gain = nn.Parameter(torch.rand(4, 4).T)
        self.register_buffer("shift", torch.rand(4))

    def forward(self, x: Tensor) -> Tensor:
        first, second = self.blocks
        return x + second(torch.tanh(first(x.to(first.weight.dtype))).float()) @ self.gain + self.shift


class Graph(nn.Module):
    def __init__(self, case: Case) -> None:
        super().__init__()
        dtypes = iter(case.dtypes)
        for number, inners in enumerate(case.stacks):
            layers = nn.ModuleList(Inner(inner, DTYPES[next(dtypes)]) for inner in inners)
            self.add_module(f"stack{number}", layers)
        self.head = nn.Linear(4, 4)
        for a, b in case.tied:
            self.layers()[a].gain = self.layers()[b].gain
        if case.shared_buffer:
            for layer in self.layers():
                layer.shift = self.layers()[0].shift
        self.case, self.passes = case, 0

    def layers(self) -> list[Inner]:
        return [layer for stack in self.children() if isinstance(stack, nn.ModuleList) for layer in stack]

    def forward(self, x: Tensor) -> Tensor:
        layers = self.layers()
        x = self.head(x)
        for index in self.case.order[self.passes % len(self.case.order)]:
            x = torch.tanh(layers[index](x))
        self.passes += 1
        return x


def watch(model: Graph, streamed: set[int]) -> None:
    """While a layer runs its weights are real and every other streamed layer's are placeholders."""
    layers = model.layers()

    def look(module: nn.Module, *_: object) -> None:
        for index, layer in enumerate(layers):
            real = not isinstance(layer.blocks[0].weight, Placeholder)
            if layer is module:
                assert real, f"layer {index} runs without weights"
            elif index in streamed:
                assert not real, f"layer {index} has weights outside its call"

    for layer in layers:
        layer.register_forward_pre_hook(look)


def attach(model: Graph, case: Case) -> Streamer:
    shared = build.resources(available=64 * GIB if case.pins else 0)
    paths = [f"stack{i}" for i in range(len(case.stacks))]
    stacks = build.find_stacks("dit", model, paths)
    counts = tuple(len(stack.layers) for stack in stacks)
    knobs = Knobs(
        tuple(min(case.prefetch, n) for n in counts),
        tuple(min(case.resident, n) for n in counts),
        case.resident_bytes,
        case.policy,
        case.lifetime,
        case.park,
    )
    return attach_streamer("dit", model, knobs, shared, stacks)


@settings(max_examples=15, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
@given(cases())
def test_weights_are_real_exactly_when_they_are_on_the_device(case: Case) -> None:
    install()
    world = start(World())
    torch.manual_seed(0)
    model = Graph(case).eval().requires_grad_(False)
    expected = build.reference(model, X, steps=4)
    model.passes = 0
    streamer = attach(model, case)
    watch(model, {layer.index for layer in streamer._streamed})
    ledger = world.devices[0].ledger
    idle: int | None = None
    for _ in range(2):
        assert torch.equal(build.use(streamer, model, X, steps=4), expected)
        model.passes = 0
        assert idle is None or ledger.live_bytes == idle
        idle = ledger.live_bytes
    streamer.start()
    granules = len(list(streamer.parcels())) + streamer._ring.num_slots
    assert 0 <= ledger.live_bytes - streamer.device_bytes < 512 * granules
    streamer.release_all()
    assert ledger.live_bytes == 0
    del streamer, model
    gc.collect()
    assert_idle(world)
