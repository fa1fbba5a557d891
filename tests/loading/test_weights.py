"""Own, aligned copies of weights: same values, ties kept, nothing copied twice."""

from pathlib import Path

import torch
from safetensors.torch import load_file, save_file
from torch import nn

from framework.loading.weights import is_aligned, own_weights, size_bytes


def mapped_module(folder: Path) -> nn.Module:
    """A module whose weights are windows into a mapped file, two of them tied."""
    save_file({"pad": torch.ones(1), "w": torch.randn(4, 4), "b": torch.randn(3)}, folder / "m.safetensors")
    tensors = load_file(folder / "m.safetensors")
    module = nn.Module()
    module.first, module.second = nn.Linear(4, 4, bias=False), nn.Linear(4, 4, bias=False)
    module.first.weight = module.second.weight = nn.Parameter(tensors["w"])
    module.register_buffer("mean", tensors["b"])
    module.alias = nn.Parameter(tensors["w"])
    return module


def test_weights_are_copied_aligned_and_frozen(tmp_path: Path) -> None:
    module = mapped_module(tmp_path)
    before = {name: tensor.clone() for name, tensor in module.state_dict().items()}
    own_weights(module)
    assert all(torch.equal(tensor, before[name]) for name, tensor in module.state_dict().items())
    assert all(is_aligned(tensor) for tensor in (*module.parameters(), *module.buffers()))
    assert not any(parameter.requires_grad for parameter in module.parameters())
    assert not module.training
    (tmp_path / "m.safetensors").write_bytes(b"\0" * 400)  # what was mapped is no longer read
    assert torch.equal(module.first.weight, before["first.weight"])


def test_ties_stay_ties_of_object_and_of_storage(tmp_path: Path) -> None:
    module = own_weights(mapped_module(tmp_path))
    assert module.first.weight is module.second.weight
    assert module.alias is not module.first.weight
    assert module.alias.data_ptr() == module.first.weight.data_ptr()


def test_what_is_aligned_and_owned_already_is_not_copied() -> None:
    module = nn.Linear(4, 4)
    pointer = module.weight.data_ptr()
    assert own_weights(module).weight.data_ptr() == pointer


def test_strides_survive(tmp_path: Path) -> None:
    module = nn.Module()
    module.w = nn.Parameter(torch.randn(9)[1:].view(2, 4).t())
    assert own_weights(module).w.stride() == (1, 4)
    assert is_aligned(module.w)


def test_a_quantised_parameter_class_is_left_alone() -> None:
    class Packed(nn.Parameter):
        pass

    module = nn.Module()
    module.w = Packed(torch.randn(9)[1:], requires_grad=False)
    kept = module.w
    assert own_weights(module).w is kept


def test_tied_bytes_count_once() -> None:
    module = nn.Module()
    module.a, module.b = nn.Linear(4, 4, bias=False), nn.Linear(4, 4, bias=False)
    assert size_bytes(module) == 2 * 64
    module.b.weight = module.a.weight
    assert size_bytes(module) == 64
