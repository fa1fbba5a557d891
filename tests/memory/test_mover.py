"""Whole components come and go; the host's copy is the master and is not written back."""

from collections.abc import Callable

import memory_builders as build
import pytest
import torch
from torch import Tensor, nn

from framework.memory.absent import AbsentWeight
from framework.memory.layerwise import attach_mover
from framework.memory.mover import Mover
from framework.memory.resources import Resources
from framework.platforms.sim.world import World

Make = Callable[..., Resources]
X = torch.linspace(-1, 1, 8).reshape(2, 4)


def run(mover: Mover, model: nn.Module, x: Tensor = X) -> Tensor:
    mover.start()
    mover.install()
    try:
        return model(x.to("sim")).cpu()
    finally:
        assert not mover.drop()


def live(sim: World) -> int:
    return sim.devices[0].ledger.live_bytes


def test_a_moved_component_computes_the_same_and_leaves_nothing(make_resources: Make, sim: World) -> None:
    model = build.layered()
    expected = build.reference(model, X, steps=1)
    mover = attach_mover("vae", model, make_resources())
    assert live(sim) == 0
    for _ in range(3):
        assert torch.equal(run(mover, model), expected)
        assert live(sim) == 0


def test_nothing_is_copied_back(make_resources: Make, sim: World) -> None:
    model = build.layered()
    mover = attach_mover("vae", model, make_resources())
    mover.start()
    mover.install()
    sim.moves.clear()
    mover.drop()
    assert sim.moves == []


def test_the_whole_component_is_what_it_says(make_resources: Make, sim: World) -> None:
    model = build.layered()
    mover = attach_mover("vae", model, make_resources())
    mover.start()
    assert 0 <= live(sim) - mover.size_bytes < 2 * 512
    mover.drop()


@pytest.mark.parametrize("fault", ["fail_allocation", "fail_copy"])
@pytest.mark.parametrize("nth", [1, 2])
def test_a_failed_move_puts_the_component_back(make_resources: Make, sim: World, fault: str, nth: int) -> None:
    model = build.layered()
    expected = build.reference(model, X, steps=1)
    mover = attach_mover("vae", model, make_resources())
    getattr(sim.faults, fault)(nth)
    with pytest.raises(RuntimeError, match="planted"):
        mover.start()
    assert live(sim) == 0
    with pytest.raises(AbsentWeight):
        model(X)
    sim.faults.clear()
    assert torch.equal(run(mover, model), expected)


class Buffered(nn.Module):
    """OC-06: persistent, non-persistent and updated buffers, and a table built lazily where the input is."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 4)
        self.register_buffer("scale", torch.rand(4))
        self.register_buffer("rope", torch.rand(16, 4), persistent=False)
        self.register_buffer("count", torch.zeros(1))
        self.lazy: Tensor | None = None

    def forward(self, x: Tensor) -> Tensor:
        self.count += 1
        if self.lazy is None or len(self.lazy) < len(x):
            self.lazy = torch.arange(len(x), device=x.device, dtype=x.dtype)[:, None]
        return self.linear(x) * self.scale + self.rope[: len(x)] + self.count + self.lazy[: len(x)]


@pytest.mark.parametrize("mode", ["component", "layerwise", "parked"])
def test_buffers_travel_and_an_updated_one_keeps_its_value(make_resources: Make, mode: str) -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.ModuleList([Buffered(), Buffered()])).requires_grad_(False)
    layers = model[0]
    inputs = [X, torch.ones(5, 4), X]
    expected = [layers[1](layers[0](x)) for x in inputs]
    for layer in layers:
        layer.count.zero_()
        layer.lazy = None
    begin, end = _moves(model, make_resources(), mode)
    for x, y in zip(inputs, expected, strict=True):
        for step in begin:
            step()
        assert torch.equal(layers[1](layers[0](x.to("sim"))).cpu(), y)
        end()
    for layer in layers:
        layer.lazy = None


def _moves(model: nn.Module, shared: Resources, mode: str) -> tuple[list[Callable[[], None]], Callable[[], object]]:
    if mode == "component":
        mover = attach_mover("vae", model, shared)
        return [mover.start, mover.install], mover.drop
    knobs = build.Knobs((1,), (0,), park=mode == "parked")
    streamer = build.attach_streamer("vae", model, knobs, shared, build.find_stacks("vae", model, ["0"]))
    return [streamer.start, streamer.wait], streamer.finish


@pytest.mark.parametrize("mode", ["component", "parked"])
def test_buffers_can_be_read_between_uses_with_their_last_value(make_resources: Make, mode: str) -> None:
    """Pipelines read a VAE's latent statistics outside its calls."""
    model = nn.Sequential(nn.ModuleList([Buffered()])).requires_grad_(False)
    layer = model[0][0]
    scale = layer.scale.clone()
    begin, end = _moves(model, make_resources(), mode)
    assert torch.equal(layer.scale, scale)
    for step in begin:
        step()
    layer(X.to("sim"))
    assert layer.scale.device.type == "sim"
    end()
    assert torch.equal(layer.scale, scale)
    assert layer.count.item() == 1
    layer.lazy = None


def test_ties_hold_over_three_cycles_and_changes_show_at_the_other_end(make_resources: Make) -> None:
    """OC-05."""
    model = nn.Sequential(nn.Embedding(6, 4), nn.Linear(4, 6, bias=False)).requires_grad_(False)
    model[1].weight = model[0].weight
    mover = attach_mover("te", model, make_resources())
    assert mover.size_bytes == 256
    for _ in range(3):
        mover.start()
        mover.install()
        assert model[0].weight is model[1].weight
        mover.drop()
    mover.host_weights()["1.weight"][2] = 7
    mover.start()
    mover.install()
    assert bool((model[0].weight[2].cpu() == 7).all())
    mover.drop()


def test_a_component_may_start_on_the_device(make_resources: Make, sim: World) -> None:
    model = build.layered()
    expected = build.reference(model, X, steps=1)
    model.to("sim")
    assert live(sim) > 0
    mover = attach_mover("vae", model, make_resources())
    assert live(sim) == 0
    assert torch.equal(run(mover, model), expected)


def test_dtypes_kept_on_purpose_stay(make_resources: Make) -> None:
    """OC-12, SX-10."""
    model = build.layered()
    before = {name: parameter.dtype for name, parameter in model.named_parameters()}
    mover = attach_mover("vae", model, make_resources())
    for step in (mover.start, mover.install, mover.drop):
        step()
        assert {name: parameter.dtype for name, parameter in model.named_parameters()} == before
