"""A weight that is not on the device says what it is and refuses every use, with or without `sim`."""

import copy
import pickle
from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from framework.memory.absent import AbsentWeight, Placeholder, make_placeholder

X = torch.ones(2, 4)

OPERATIONS: dict[str, Callable[[Placeholder], object]] = {
    "linear": lambda w: functional.linear(X, w),
    "matmul": lambda w: X @ w,
    "right matmul": lambda w: w @ X.T,
    "add": lambda w: w + 1,
    "right add": lambda w: 1 + w,
    "in place": lambda w: w.add_(1),
    "add to": lambda w: torch.ones(4, 4).add_(w),
    "compare": lambda w: w == w,
    "copy from": lambda w: torch.empty(4, 4).copy_(w),
    "copy to": lambda w: w.copy_(torch.ones(4, 4)),
    "to dtype": lambda w: w.to(torch.float16),
    "to cpu": lambda w: w.cpu(),
    "to device": lambda w: w.to("cpu"),
    "clone": lambda w: w.clone(),
    "detach": lambda w: w.detach(),
    "data": lambda w: w.data,
    "set data": lambda w: setattr(w, "data", torch.ones(4, 4)),
    "transpose": lambda w: w.T,
    "view": lambda w: w.view(16),
    "reshape": lambda w: w.reshape(2, 8),
    "index": lambda w: w[0],
    "set item": lambda w: w.__setitem__(0, 1.0),
    "sum": lambda w: w.sum(),
    "item": lambda w: w.item(),
    "tolist": lambda w: w.tolist(),
    "numpy": lambda w: w.numpy(),
    "bool": lambda w: bool(w),
    "iterate": lambda w: list(w),
    "stack": lambda w: torch.stack([torch.ones(4, 4), w]),
    "cat": lambda w: torch.cat([w, w]),
    "where": lambda w: torch.where(torch.ones(4, 4) > 0, w, w),
    "embedding": lambda w: functional.embedding(torch.tensor([1]), w),
    "layer norm": lambda w: functional.layer_norm(X, (4,), w[0]),
    "convolution": lambda w: functional.conv1d(torch.ones(1, 4, 8), w),
    "einsum": lambda w: torch.einsum("ij,kj->ik", X, w),
    "like": lambda w: torch.zeros_like(w),
    "storage": lambda w: w.untyped_storage(),
    "address": lambda w: w.data_ptr(),
    "equal": lambda w: torch.equal(w, w),
    "norm": lambda w: torch.linalg.vector_norm(w),
    "deepcopy": copy.deepcopy,
    "pickle": pickle.dumps,
    "parameter": lambda w: nn.Parameter(w),
}


def absent(device: str = "cpu") -> Placeholder:
    like = nn.Parameter(torch.ones(4, 4, dtype=torch.bfloat16).T, requires_grad=False)
    return make_placeholder(like, torch.device(device), "transformer", "blocks.3", "blocks.3.to_q.weight", {})


@pytest.mark.parametrize("name", OPERATIONS)
def test_every_operation_is_refused_by_name(name: str) -> None:
    with pytest.raises(AbsentWeight) as caught:
        OPERATIONS[name](absent())
    assert (caught.value.component, caught.value.layer) == ("transformer", "blocks.3")
    assert caught.value.tensor == "blocks.3.to_q.weight"


@pytest.mark.parametrize("name", ["linear", "matmul", "add to", "cat", "where", "embedding", "layer norm"])
def test_operations_with_tensors_of_the_device_are_refused_too(sim: object, name: str) -> None:
    with pytest.raises(AbsentWeight):
        OPERATIONS[name](absent("sim:0"))
    with pytest.raises(AbsentWeight):
        functional.linear(X.to("sim"), absent("sim:0"))


@pytest.mark.parametrize("device", ["cpu", "cuda:0"])
def test_it_tells_what_the_weight_is(device: str) -> None:
    weight = absent(device)
    assert weight.device == torch.device(device)
    assert (weight.shape, weight.dtype, weight.stride()) == ((4, 4), torch.bfloat16, (1, 4))
    assert (weight.ndim, weight.numel(), weight.nbytes, weight.element_size()) == (2, 16, 32, 2)
    assert weight.is_floating_point()
    assert not weight.is_contiguous()
    assert not weight.requires_grad
    assert isinstance(weight, nn.Parameter)
    assert "blocks.3.to_q.weight" in repr(weight)


def test_attributes_of_the_weight_stay_readable() -> None:
    weight = make_placeholder(torch.ones(2), torch.device("cpu"), "c", "l", "t", {"quant_type": "q4"})
    assert weight.quant_type == "q4"


def test_the_message_names_component_layer_weight_operation_and_a_way_out() -> None:
    with pytest.raises(AbsentWeight) as caught:
        functional.linear(X, absent())
    for part in ("'transformer'", "'blocks.3'", "'blocks.3.to_q.weight'", "linear", "component_residency.transformer"):
        assert part in str(caught.value)


def test_a_module_that_holds_one_says_where_it_computes() -> None:
    module = nn.Linear(4, 4, bias=False)
    module._parameters["weight"] = absent("cuda:0")
    tensor: Tensor = next(module.parameters())
    assert tensor.device.type == "cuda"
    with pytest.raises(AbsentWeight):
        module(X)
    with pytest.raises(AbsentWeight):
        module.to(torch.float32)
