"""Big lookup tables on the host (case ME-03)."""

from collections import Counter
from collections.abc import Callable

import memory_builders as build
import pytest
import torch
from torch import Tensor, nn

from framework.memory.absent import AbsentWeight
from framework.memory.host_table import gather_only
from framework.memory.layerwise import attach_streamer
from framework.memory.ownership import collect_weights
from framework.memory.resources import Resources
from framework.memory.streamer import Streamer
from framework.platforms.sim.world import World

Make = Callable[..., Resources]
TOKENS = torch.tensor([[3, 1, 99]])


class Encoder(nn.Module):
    """A table of 80 % of the bytes before a stack; `tied` uses it as a matrix too."""

    def __init__(self, tied: bool = False) -> None:
        super().__init__()
        self.shared = nn.Embedding(1000, 8)
        self.embed_tokens = nn.Embedding(1000, 8)
        self.embed_tokens.weight = self.shared.weight
        self.blocks = nn.ModuleList(nn.Linear(8, 8) for _ in range(14))
        self.head = nn.Linear(8, 1000, bias=False) if tied else nn.Linear(8, 2)
        if tied:
            self.head.weight = self.shared.weight

    def forward(self, tokens: Tensor) -> Tensor:
        x = self.embed_tokens(tokens) + self.shared(input=tokens)
        for block in self.blocks:
            x = block(x)
        return self.head(x)


def make(tied: bool = False) -> Encoder:
    torch.manual_seed(0)
    return Encoder(tied).requires_grad_(False)


def attach(model: nn.Module, shared: Resources) -> Streamer:
    stacks = build.find_stacks("text_encoder", model, ["blocks"])
    return attach_streamer("text_encoder", model, build.Knobs((1,), (0,)), shared, stacks)


@pytest.mark.parametrize("start_on_device", [False, True])
def test_a_table_on_the_host_gives_the_same_rows(make_resources: Make, sim: World, start_on_device: bool) -> None:
    model = make()
    expected = model(TOKENS)
    if start_on_device:
        model.to("sim")
    streamer = attach(model, make_resources(table_bytes=1000))
    sim.devices[0].ledger.reset_peak()
    for _ in range(2):
        streamer.start()
        streamer.wait()
        assert torch.equal(model(TOKENS.to("sim")).cpu(), expected)
        assert start_on_device or model.shared.weight is model.embed_tokens.weight
        streamer.finish()
    assert sim.devices[0].ledger.peak_bytes < model.shared.weight.nbytes
    streamer.detach()
    assert torch.equal(model(TOKENS), expected)


def test_only_the_rows_asked_for_travel(make_resources: Make, sim: World) -> None:
    model, shared = make(), make_resources(table_bytes=1000)
    streamer = attach(model, shared)
    streamer.start()
    streamer.wait()
    sim.moves.clear()
    tokens, before = TOKENS.to("sim"), Counter(shared.courier.moved)
    model.shared(tokens)
    assert sum(move.size_bytes for move in sim.moves) == 2 * 3 * 8 + 3 * 8 * 4
    counted = shared.courier.moved - before
    assert counted == {("text_encoder", "d2h"): 3 * 8, ("text_encoder", "h2d"): 3 * 8 * 4}
    assert [move.component for move in sim.moves] == [None, "text_encoder", "text_encoder"]
    streamer.finish()


def test_the_table_says_it_is_on_the_device_and_refuses_other_reads(make_resources: Make) -> None:
    model = make()
    attach(model, make_resources(table_bytes=1000))
    assert next(model.parameters()).device == torch.device("sim:0")
    with pytest.raises(AbsentWeight, match=r"'shared.weight'"):
        model.shared.weight.sum()


@pytest.mark.parametrize(("tied", "least"), [(True, 1000), (False, 100_000)])
def test_a_tied_or_small_table_goes_to_the_device(make_resources: Make, sim: World, tied: bool, least: int) -> None:
    model = make(tied)
    expected = model(TOKENS)
    streamer = attach(model, make_resources(table_bytes=least))
    streamer.start()
    streamer.wait()
    assert sim.devices[0].ledger.live_bytes > model.shared.weight.nbytes
    assert torch.equal(model(TOKENS.to("sim")).cpu(), expected)
    streamer.finish()


def test_a_table_inside_a_layer_travels_with_its_layer() -> None:
    model = nn.Sequential(nn.ModuleList([nn.Embedding(1000, 8), nn.Linear(8, 8)]), nn.Embedding(500, 8))
    weights = collect_weights("te", "layerwise-offload", model, list(model[0]))
    assert [weight.name for weight, _ in gather_only(model, weights, 1000)] == ["1.weight"]
