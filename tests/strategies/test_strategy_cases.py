"""Public reports tried on each strategy alone: OC-07, OC-11, LI-06, SX-9."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from framework.memory.resources import Resources, make_resources
from framework.platforms import make_platform
from framework.platforms.sim.world import World
from framework.registry import STRATEGIES
from framework.spec import Knob, Placement

MODES = ("resident", "component-offload", "layerwise-offload")
Build = Callable[..., Any]


class Block(nn.Module):
    """A layer of any width and dtype between two of the same outer width, with a count of its calls."""

    def __init__(self, width: int, dtype: torch.dtype) -> None:
        super().__init__()
        self.into, self.out = nn.Linear(4, width, dtype=dtype), nn.Linear(width, 4, dtype=dtype)
        self.register_buffer("calls", torch.zeros(1))

    def forward(self, x: Tensor) -> Tensor:
        self.calls += 1
        dtype = self.into.weight.dtype
        return x + self.out(torch.tanh(self.into(x.to(dtype)))).to(x.dtype)


class Dense(nn.Module):
    def __init__(self, dtype: torch.dtype) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 4, dtype=dtype)

    def forward(self, x: Tensor) -> Tensor:
        return torch.tanh(self.linear(x))


class Asking(nn.Module):
    """It puts its input where, and into what, its first parameter says it is."""

    def __init__(self, dtype: torch.dtype = torch.bfloat16) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(Dense(dtype) for _ in range(4))

    def forward(self, x: Tensor) -> Tensor:
        first = next(self.parameters())
        x = x.to(first.device, first.dtype)
        for block in self.blocks:
            inner = next(block.parameters())
            x = block(x.to(inner.device, inner.dtype))
        return x.float()


class Uneven(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        kinds = (torch.float32, torch.bfloat16, torch.float16)
        self.blocks = nn.ModuleList(Block(width, kinds[i % 3]) for i, width in enumerate((2, 16, 3, 40, 5, 8)))

    def forward(self, x: Tensor) -> Tensor:
        for block in self.blocks:
            x = block(x)
        return x


@pytest.fixture
def build(sim: World) -> Iterator[Build]:
    """Build a strategy for a module on a device; options are knobs as written."""
    made: list[tuple[Any, nn.Module]] = []

    def make(mode: str, module: nn.Module, device: str = "sim", **knobs: str) -> Any:
        platform = make_platform(device)
        resources: Resources = make_resources(platform, layers={"dit": ("blocks",)})
        chosen = {name: Knob(value) for name, value in knobs.items()}
        placement = Placement(component="dit", group="dit", mode=mode, **chosen)
        strategy = STRATEGIES.get(mode)("dit", module, placement, platform.device, resources)
        made.append((strategy, module))
        return strategy

    yield make
    for strategy, module in made:
        getattr(strategy, "detach", lambda: None)()
        module._modules.clear()  # pytest keeps the module longer than the simulated machine
    made.clear()
    del strategy, module


def use(strategy: Any, module: nn.Module, x: Tensor, device: str = "sim") -> Tensor:
    strategy.prepare()
    strategy.wait()
    result: Tensor = module(x.to(device)).cpu()
    strategy.finish_use()
    return result


@pytest.mark.parametrize("mode", MODES)
def test_oc07_a_module_that_asks_its_first_parameter_is_told_where_it_computes(
    mode: str, build: Build, sim: World
) -> None:
    """OC-07: device and dtype are those of the use, while the weights are stored elsewhere."""
    torch.manual_seed(0)
    module = Asking().requires_grad_(False)
    x = torch.linspace(-1, 1, 8).reshape(2, 4)
    expected = module(x)
    strategy = build(mode, module)
    for _ in range(2):
        assert torch.equal(use(strategy, module, x), expected)
    strategy.finish_request(False)


@pytest.mark.parametrize("prefetch", ["1", "3"])
def test_oc11_layers_of_any_width_and_dtype_stream_through_slots_of_the_largest(
    prefetch: str, build: Build, sim: World
) -> None:
    """OC-11: what a use holds is the largest layer times the slots, not the first layer times them."""
    torch.manual_seed(0)
    module = Uneven().requires_grad_(False)
    x = torch.linspace(-1, 1, 8).reshape(2, 4)
    expected = module(x)
    sizes = [sum(p.numel() * p.element_size() for p in block.parameters()) for block in module.blocks]
    strategy = build("layerwise-offload", module, prefetch=prefetch, resident="0")
    assert torch.equal(use(strategy, module, x), expected)
    assert strategy.device_bytes >= (1 + int(prefetch)) * max(sizes) > (1 + int(prefetch)) * sizes[0]
    assert torch.equal(use(strategy, module, x), expected)


@pytest.mark.parametrize("mode", MODES)
def test_sx9_a_value_that_came_back_from_the_device_is_there_when_it_is_read(
    mode: str, build: Build, sim: World
) -> None:
    """SX-9: the only tensors that come back are buffers that the forward wrote, and nobody reads them too early."""
    module = Uneven().requires_grad_(False)
    strategy = build(mode, module)
    for calls in (1, 2):
        use(strategy, module, torch.ones(2, 4))
        assert [block.calls.cpu().item() for block in module.blocks] == [calls] * 6
    strategy.finish_request(False)


@pytest.fixture
def _fresh_compiler() -> Iterator[None]:
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()


@pytest.mark.usefixtures("_fresh_compiler")
@pytest.mark.parametrize("mode", MODES)
def test_li06_compiled_blocks_are_compiled_once_in_every_mode(mode: str, build: Build) -> None:
    """LI-06: three requests, other memory taken in between, and not one compilation after the first of them."""
    compiled: list[Any] = []

    def backend(graph: torch.fx.GraphModule, inputs: list[Any]) -> Any:
        compiled.append(graph)
        return graph.forward

    module = Asking(torch.float32).requires_grad_(False)
    x = torch.ones(2, 4)
    expected = module(x)
    strategy = build(mode, module, device="cpu")
    for block in module.blocks:
        block.compile(backend=backend)
    counts, other = [], []
    for _ in range(3):
        assert torch.equal(use(strategy, module, x, "cpu"), expected)
        strategy.finish_request(False)
        counts.append(len(compiled))
        other.append(torch.empty(1 << 16))
    assert counts[0] > 0
    assert counts[1:] == counts[:1] * 2
