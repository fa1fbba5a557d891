"""Strategy `resident`: placed once, cast for a use and restored after it."""

import torch
from torch import nn

from framework.spec import Placement
from strategies.resident import Resident


def tied_module() -> nn.Module:
    module = nn.Module()
    module.first = nn.Linear(2, 2, bias=False)
    module.second = nn.Linear(2, 2, bias=False)
    module.second.weight = module.first.weight
    module.kept = nn.Parameter(torch.ones(1, dtype=torch.float64), requires_grad=False)
    return module


def resident(module: nn.Module) -> Resident:
    return Resident("x", module, Placement(component="x", group=None, mode="resident"), torch.device("cpu"))


def test_a_use_in_another_dtype_is_undone_exactly() -> None:
    module = tied_module()
    before = dict(module.named_parameters())
    strategy = resident(module)
    strategy.prepare(torch.bfloat16)
    assert module.first.weight.dtype == torch.bfloat16
    strategy.finish_use()
    assert all(after is before[name] for name, after in module.named_parameters())


def test_ties_and_kept_dtypes_survive_a_cast() -> None:
    module = tied_module()
    resident(module).prepare(torch.bfloat16)
    assert module.first.weight is module.second.weight
    assert module.kept.dtype == torch.float64


def test_a_second_dtype_starts_from_the_original() -> None:
    module = tied_module()
    original = module.first.weight.clone()
    strategy = resident(module)
    strategy.prepare(torch.bfloat16)
    strategy.prepare(torch.float64)
    assert torch.equal(module.first.weight, original.double())
    strategy.finish_request(preferred=False)
    assert module.first.weight.dtype == torch.float32
