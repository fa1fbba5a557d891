"""Every way into a component is announced, with its arguments and its result untouched."""

import pytest
import torch
from torch import nn

from framework.runtime.hook import attach_hook


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
