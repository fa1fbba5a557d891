"""A module moves for good: classes, attributes and ties come along, and a failure leaves it as it was."""

from collections.abc import Iterator

import pytest
import torch
from torch import nn

from framework.memory.relocate import relocate
from framework.platforms.sim.world import World


class Packed(nn.Parameter):
    """A quantised weight that cannot be made without its format."""

    def __new__(cls, data: torch.Tensor, *, quant_type: str) -> "Packed":
        made = torch.Tensor._make_subclass(cls, data, False)
        made.quant_type = quant_type
        return made


@pytest.fixture
def model(sim: World) -> Iterator[nn.Sequential]:
    made = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4), nn.BatchNorm1d(4)).requires_grad_(False)
    made[1].weight = made[0].weight
    made[0].bias = Packed(torch.ones(4), quant_type="q4")
    yield made
    made._modules.clear()


def test_there_and_back_everything_is_as_it_was(model: nn.Sequential) -> None:
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    for device in (torch.device("sim", 0), torch.device("cpu")):
        relocate(model, device)
        assert {tensor.device for tensor in model.state_dict().values()} == {device}
        assert model[1].weight is model[0].weight
        assert isinstance(model[0].bias, Packed)
        assert model[0].bias.quant_type == "q4"
        assert isinstance(model[1].bias, nn.Parameter)
    assert all(torch.equal(tensor, before[name]) for name, tensor in model.state_dict().items())


def test_a_failure_leaves_the_module_where_it_was(model: nn.Sequential, sim: World) -> None:
    before = list(model.state_dict(keep_vars=True).values())
    sim.faults.fail_allocation(4)
    with pytest.raises(torch.OutOfMemoryError):
        relocate(model, torch.device("sim", 0))
    assert all(now is then for now, then in zip(model.state_dict(keep_vars=True).values(), before, strict=True))
    assert sim.devices[0].ledger.live_bytes == 0
