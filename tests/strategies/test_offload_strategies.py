"""The two offload strategies as the residency manager calls them."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from framework.errors import ConfigError
from framework.memory.courier import Courier
from framework.memory.host_budget import HostMemory
from framework.memory.host_store import HostStore
from framework.memory.pin_ledger import GIB, PinLedger
from framework.memory.resources import Resources
from framework.platforms import make_platform
from framework.platforms.sim.world import World
from framework.registry import STRATEGIES
from framework.spec import Knob, Placement

X = torch.linspace(-1, 1, 8).reshape(2, 4)
OFFLOADS = ("component-offload", "layerwise-offload")


class Model(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(nn.Linear(4, 4) for _ in range(4))
        self.norm = nn.LayerNorm(4)

    def forward(self, x: Tensor) -> Tensor:
        for block in self.blocks:
            x = torch.tanh(block(x))
        return self.norm(x)


@pytest.fixture
def shared(sim: World) -> Resources:
    platform = make_platform("sim")
    ledger = PinLedger(HostMemory(64 * GIB, 64 * GIB))
    return Resources(Courier(platform, 512), HostStore(platform, ledger), layers={"dit": ("blocks",)})


@pytest.fixture
def model(sim: World) -> Model:
    torch.manual_seed(0)
    return Model().requires_grad_(False)


@pytest.fixture
def build(shared: Resources, model: Model) -> Iterator[Callable[..., Any]]:
    """Build a strategy for the model; options are knobs as written."""
    made = []

    def make(mode: str, **knobs: str) -> Any:
        chosen = {name: Knob(value) for name, value in knobs.items()}
        placement = Placement(component="dit", group="dit", mode=mode, **chosen)
        made.append(STRATEGIES.get(mode)("dit", model, placement, torch.device("sim", 0), shared))
        return made[-1]

    yield make
    for strategy in made:
        strategy.detach()
    made.clear()
    model._modules.clear()  # pytest keeps the model longer than the simulated machine


def use(strategy: Any, model: nn.Module) -> Tensor:
    strategy.prepare()
    strategy.wait()
    result: Tensor = model(X.to("sim")).cpu()
    strategy.finish_use()
    return result


@pytest.mark.parametrize("mode", OFFLOADS)
def test_every_use_gives_the_same_bytes_and_ends_idle(
    build: Callable[..., Any], model: Model, sim: World, mode: str
) -> None:
    expected = model(X)
    strategy = build(mode)
    idle = None
    for _ in range(3):
        assert torch.equal(use(strategy, model), expected)
        strategy.finish_request(preferred=False)
        live = sim.devices[0].ledger.live_bytes
        assert idle is None or live == idle
        idle = live
    strategy.detach()
    assert sim.devices[0].ledger.live_bytes == 0
    assert torch.equal(model(X), expected)


def test_component_offload_leaves_nothing_behind_after_a_request(
    build: Callable[..., Any], model: Model, sim: World
) -> None:
    strategy = build("component-offload")
    use(strategy, model)
    strategy.finish_request(preferred=False)
    assert sim.devices[0].ledger.live_bytes == 0


@pytest.mark.parametrize("mode", OFFLOADS)
def test_a_preferred_component_is_ready_after_the_request(
    build: Callable[..., Any], model: Model, sim: World, mode: str
) -> None:
    expected = model(X)
    strategy = build(mode)
    use(strategy, model)
    sim.moves.clear()
    strategy.finish_request(preferred=True)
    fetched = [move.layer for move in sim.moves]
    assert fetched, "it comes back before the first real request"
    sim.moves.clear()
    strategy.prepare()
    assert not sim.moves
    assert torch.equal(use(strategy, model), expected)


def test_a_whole_component_is_not_fetched_beside_another(build: Callable[..., Any], model: Model, sim: World) -> None:
    strategy = build("component-offload")
    assert not strategy.prefetch(beside_active=True)
    assert not sim.moves
    assert strategy.prefetch(beside_active=False)
    assert sim.moves
    use(strategy, model)


def test_a_layerwise_head_may_come_beside_another_unless_it_brings_residents(
    build: Callable[..., Any], model: Model, sim: World
) -> None:
    strategy = build("layerwise-offload", resident="2")
    assert not strategy.prefetch(beside_active=True)
    strategy.detach()
    strategy = build("layerwise-offload", resident="0")
    assert strategy.prefetch(beside_active=True)
    assert sim.moves
    use(strategy, model)


@pytest.mark.parametrize("mode", OFFLOADS)
def test_a_prefetch_that_does_not_fit_is_not_an_error(
    build: Callable[..., Any], model: Model, sim: World, mode: str
) -> None:
    expected = model(X)
    strategy = build(mode)
    sim.faults.fail_allocation(1)
    assert not strategy.prefetch(beside_active=False)
    assert sim.devices[0].ledger.live_bytes == 0
    assert torch.equal(use(strategy, model), expected)


def test_a_use_in_another_dtype_is_cast_and_undone(build: Callable[..., Any], model: Model) -> None:
    expected = model(X)
    strategy = build("component-offload")
    strategy.prepare(torch.float64)
    strategy.wait()
    assert model(X.double().to("sim")).dtype == torch.float64
    strategy.finish_use()
    assert torch.equal(use(strategy, model), expected)


def test_a_streamed_component_refuses_another_dtype_by_name(build: Callable[..., Any], model: Model) -> None:
    strategy = build("layerwise-offload")
    with pytest.raises(ConfigError, match=r"component_residency.dit: layerwise-offload streams weights as loaded"):
        strategy.prepare(torch.float64)
    strategy.prepare(torch.float32)
    strategy.finish_use()


def test_all_modes_in_turn_on_one_component(build: Callable[..., Any], model: Model) -> None:
    """LI-04."""
    expected = model(X)
    for mode in ("layerwise-offload", "component-offload", "layerwise-offload"):
        strategy = build(mode)
        assert torch.equal(use(strategy, model), expected)
        strategy.detach()
    assert torch.equal(model(X), expected)
    assert not model.blocks[0]._forward_hooks


@pytest.mark.parametrize("mode", OFFLOADS)
def test_an_edit_of_the_host_weights_is_used_and_can_be_undone(
    build: Callable[..., Any], model: Model, mode: str
) -> None:
    expected = model(X)
    model.blocks[1].weight.mul_(2)
    edited = model(X)
    model.blocks[1].weight.div_(2)
    strategy = build(mode)
    assert torch.equal(use(strategy, model), expected)
    strategy.host_weights()["blocks.1.weight"].mul_(2)
    assert torch.equal(use(strategy, model), edited)
    strategy.host_weights()["blocks.1.weight"].div_(2)
    assert torch.equal(use(strategy, model), expected)


AMOUNTS = ["0", "0.4", "0.99", "1", "1.0", "3", "4", "5", "100", "all", "50%"]


@pytest.mark.parametrize("policy", ["leading", "strided"])
@pytest.mark.parametrize("resident", AMOUNTS)
def test_every_amount_at_the_borders_gives_the_same_bytes(
    build: Callable[..., Any], model: Model, policy: str, resident: str
) -> None:
    """CF-09; what is no amount at all is refused by the configuration."""
    expected = model(X)
    for prefetch in AMOUNTS:
        strategy = build("layerwise-offload", prefetch=prefetch, resident=resident)
        assert torch.equal(use(strategy, model), expected)
        assert torch.equal(use(strategy, model), expected)
        strategy.detach()


def test_all_layers_resident_behaves_as_resident_inside_a_use(
    build: Callable[..., Any], model: Model, sim: World
) -> None:
    strategy = build("layerwise-offload", resident="all")
    strategy.prepare()
    strategy.wait()
    y = model(X.to("sim"))
    sim.moves.clear()
    model(y)
    assert not sim.moves
    strategy.finish_use()
