"""Every way into a component is announced, with its arguments and its result untouched."""

import pytest
import torch
from torch import nn

from framework.runtime.hook import attach_hook, remove_hook


class Encoder(nn.Module):
    """Has entry points that never reach forward, as CLIP has."""

    def forward(self, number: int) -> int:
        return number

    def get_image_features(self, number: int, *, more: int = 0) -> int:
        return number + more

    def generate(self, number: int) -> int:
        return int(self(number))


@pytest.fixture
def encoder() -> tuple[Encoder, list[str]]:
    module, calls = Encoder(), []
    attach_hook(module, "image_encoder", torch.device("cpu")).on_call = calls.append
    return module, calls


def test_the_forward_is_announced(encoder: tuple[Encoder, list[str]]) -> None:
    module, calls = encoder
    assert module(3) == 3
    assert calls == ["image_encoder"]


def test_an_entry_point_that_never_reaches_forward_is_announced(encoder: tuple[Encoder, list[str]]) -> None:
    module, calls = encoder
    assert module.get_image_features(3, more=4) == 7
    assert calls == ["image_encoder"]


def test_an_entry_point_is_announced_before_its_own_work(encoder: tuple[Encoder, list[str]]) -> None:
    module, calls = encoder
    assert module.generate(3) == 3
    assert calls == ["image_encoder", "image_encoder"]


def test_a_module_gets_no_entry_point_that_its_class_lacks(encoder: tuple[Encoder, list[str]]) -> None:
    assert not hasattr(encoder[0], "decode")


def test_a_cast_is_asked_for_while_somebody_listens_and_done_at_once_otherwise() -> None:
    module = nn.Linear(2, 2)
    hook = attach_hook(module, "vae", torch.device("cpu"))
    asked: list[tuple[str, torch.dtype]] = []
    hook.on_cast = lambda component, dtype: asked.append((component, dtype))
    assert module.to(torch.float64) is module
    assert module.to("cpu") is module
    assert asked == [("vae", torch.float64)]
    assert module.weight.dtype == torch.float32
    hook.on_cast = None
    assert module.to(torch.float64).weight.dtype == torch.float64


def test_what_the_hook_put_on_a_module_can_be_taken_off() -> None:
    module = nn.Linear(2, 2)
    before = set(vars(module))
    attach_hook(module, "vae", torch.device("cpu"))
    remove_hook(module)
    assert {name for name in set(vars(module)) - before if "hf_hook" in name or name in ("to", "generate")} == set()
