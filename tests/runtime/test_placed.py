"""Building, finding and giving up strategies; components that torch.distributed has sharded."""

from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from torch import nn

from framework.errors import ConfigError, FrameworkError, PlanError
from framework.memory.resources import Resources, make_resources
from framework.platforms import make_platform
from framework.platforms.sim.testing import sim as sim
from framework.platforms.sim.world import World
from framework.registry import STRATEGIES
from framework.runtime.placed import Placed
from framework.spec import Placement

BUILT: list[tuple[str, object]] = []


class Idle:
    """Does nothing, as a strategy may."""

    def prepare(self, dtype: torch.dtype | None = None) -> None: ...

    def wait(self) -> None: ...

    def finish_use(self) -> None: ...

    def finish_request(self, preferred: bool) -> None:
        BUILT.append(("finish_request", preferred))

    def prefetch(self, beside_active: bool) -> bool:
        return False


class FourArguments(Idle):
    def __init__(self, component: str, module: nn.Module, placement: Placement, device: torch.device) -> None:
        BUILT.append((component, torch.is_inference_mode_enabled()))


class FiveArguments(Idle):
    def __init__(
        self, component: str, module: nn.Module, placement: Placement, device: torch.device, resources: Resources
    ) -> None:
        BUILT.append((component, resources))


@pytest.fixture(autouse=True)
def _modes(monkeypatch: pytest.MonkeyPatch) -> None:
    """The two strategies are modes for these tests only."""
    BUILT.clear()
    for name, cls in (("four-arguments", FourArguments), ("five-arguments", FiveArguments)):
        monkeypatch.setitem(STRATEGIES._loaded, name, cls)
        monkeypatch.setitem(STRATEGIES._shown, name, name)


def placed(device: str, **modes: str) -> Placed:
    chosen = {name: Placement(component=name, group=None, mode=mode) for name, mode in modes.items()}
    return Placed(chosen, make_resources(make_platform(device)))


def test_what_is_not_resident_is_counted_with_what_came_late() -> None:
    found = placed("cpu", a="resident", b="component-offload", late="component-offload")
    for name in ("a", "b"):
        found.strategy(name, nn.Linear(1, 1))
    assert found.offloaded_bytes() == {"b": 8}
    found.strategy("late", nn.Linear(3, 1))
    assert found.offloaded_bytes() == {"b": 8, "late": 16}
    found.close()


def test_a_strategy_gets_the_shared_resources_if_it_takes_them() -> None:
    found = placed("cpu", a="four-arguments", b="five-arguments")
    with torch.inference_mode():
        found.strategy("a", nn.Linear(1, 1))
        found.strategy("b", nn.Linear(1, 1))
    assert [("a", False), ("b", found.resources)] == BUILT


def test_a_strategy_is_built_once_for_a_module_and_anew_for_another() -> None:
    found = placed("cpu", a="four-arguments")
    one, other = nn.Linear(1, 1), nn.Linear(1, 1)
    first = found.strategy("a", one)
    assert found.strategy("a", one) is first
    assert found.strategy("a", other) is not first
    assert BUILT == [("a", False), ("finish_request", False), ("a", False)]


def test_another_plan_rebuilds_only_what_it_changes() -> None:
    found = placed("cpu", a="four-arguments", b="four-arguments")
    a, b = nn.Linear(1, 1), nn.Linear(1, 1)
    kept, _ = found.strategy("a", a), found.strategy("b", b)
    found.change({"a": found.placement("a"), "b": Placement(component="b", group=None, mode="resident")})
    assert found.components() == ("a",)
    assert found.strategy("a", a) is kept
    assert found.mode("b") == "resident"


def test_a_component_given_up_gives_its_pins_back(sim: World) -> None:
    found = placed("sim", a="component-offload")
    module = nn.Linear(8, 8).requires_grad_(False)
    found.strategy("a", module)
    assert found.resources.store.ledger.granted_bytes > 0
    found.forget("a")
    assert found.resources.store.ledger.granted_bytes == 0
    assert sim.pinned.find(module.weight.data) is None, "what nobody books is not locked"
    assert module.weight.device.type == "cpu"


def test_a_placing_that_fails_is_one_line_and_can_be_tried_again(sim: World) -> None:
    found = placed("sim", a="resident")
    module = nn.Sequential(nn.Linear(4, 4), nn.Linear(64, 64)).requires_grad_(False)
    sim.faults.fail_copy(2)
    with pytest.raises(FrameworkError, match=r"^component 'a' \(resident\) cannot be placed: copy h2d .*planted"):
        found.strategy("a", module)
    assert found.components() == ()
    assert module[0].weight.device.type == "cpu"
    found.strategy("a", module)
    assert found.components() == ("a",)
    found.close()


def test_what_does_not_fit_is_named_with_what_would(sim: World) -> None:
    found = placed("sim")
    sim.devices[0].ledger.capacity_bytes = 1024
    module = nn.Linear(64, 64).requires_grad_(False)
    with pytest.raises(PlanError, match=r"component 'a' \(resident\) does not fit .*component_residency.a=layerwise"):
        found.strategy("a", module)
    assert module.weight.device.type == module.bias.device.type == "cpu"
    assert found.components() == ()


def test_tensors_that_other_code_moved_are_named(sim: World) -> None:
    found = placed("sim", a="resident", b="component-offload")
    a, b = nn.Linear(2, 2).requires_grad_(False), nn.Linear(2, 2).requires_grad_(False)
    found.strategy("a", a)
    found.strategy("b", b)
    assert found.misplaced("a") == found.misplaced("b") == []
    a._parameters["bias"] = nn.Parameter(torch.zeros(2), requires_grad=False)
    b._parameters["weight"] = nn.Parameter(torch.zeros(2, 2), requires_grad=False)
    assert found.misplaced("a") == ["bias"]
    assert found.misplaced("b") == ["weight"]
    found.close()


@pytest.fixture
def sharded(tmp_path: Path) -> Iterator[nn.Module]:
    """A module that FSDP has sharded over a mesh of one CPU."""
    from torch import distributed
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard

    distributed.init_process_group("gloo", init_method=f"file://{tmp_path}/store", rank=0, world_size=1)
    try:
        module = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4)).requires_grad_(False)
        yield fully_shard(module, mesh=init_device_mesh("cpu", (1,)))
    finally:
        distributed.destroy_process_group()


def test_a_sharded_module_is_never_moved(sim: World, sharded: nn.Module) -> None:
    found = placed("sim", a="resident")
    before = [parameter.data_ptr() for parameter in sharded.parameters() if hasattr(parameter, "_local_tensor")]
    kept = list(sharded.parameters())
    strategy = found.strategy("a", sharded)
    strategy.prepare()
    strategy.finish_request(False)
    assert found.misplaced("a") == []
    found.close()
    assert all(one is other for one, other in zip(kept, sharded.parameters(), strict=True))
    assert before == [parameter.data_ptr() for parameter in sharded.parameters() if hasattr(parameter, "_local_tensor")]
    assert sim.devices[0].ledger.num_allocations == 0


@pytest.mark.parametrize("mode", ["component-offload", "layerwise-offload"])
def test_offload_of_a_sharded_module_is_refused(sim: World, sharded: nn.Module, mode: str) -> None:
    found = Placed(
        {"a": Placement(component="a", group=None, mode=mode)},
        make_resources(make_platform("sim"), layers={"a": ("",)}),
    )
    with pytest.raises(ConfigError, match=f"component_residency.a: {mode} cannot "):
        found.strategy("a", sharded)
