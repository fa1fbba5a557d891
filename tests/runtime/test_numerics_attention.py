"""Attention backends: given to those that ask for one, alike in every mode, put back, refused by name."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numerics_builders as build
import pytest
import torch
from diffusers.models.attention_dispatch import AttentionBackendName, _AttentionBackendRegistry
from torch import nn

from framework.attention_backends import Backend
from framework.errors import ConfigError
from framework.runtime import attention
from framework.runtime.attention import attention_backend
from framework.spec import NumericsSpec


def backends(module: nn.Module) -> set[Any]:
    processors: Iterator[Any] = (getattr(part, "processor", None) for part in module.modules())
    return {processor._attention_backend for processor in processors if hasattr(processor, "_attention_backend")}


@pytest.fixture
def transformer(loaded_stores: Callable[[str], Any]) -> nn.Module:
    module: nn.Module = loaded_stores("wan21")[2].module("transformer")
    return module


def test_only_the_denoisers_get_it_and_it_is_put_back(transformer: nn.Module) -> None:
    with attention_backend("native-math", {"transformer": transformer}, print):
        assert backends(transformer) == {AttentionBackendName._NATIVE_MATH}
        assert _AttentionBackendRegistry.get_active_backend()[0] == AttentionBackendName.NATIVE
    assert backends(transformer) == {None}


def test_the_environment_decides_nothing_and_a_line_says_so(
    transformer: nn.Module, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_AttentionBackendRegistry, "_active_backend", AttentionBackendName.FLEX)
    told: list[str] = []
    with attention_backend("sdpa", {"transformer": transformer}, told.append):
        assert _AttentionBackendRegistry.get_active_backend()[0] == AttentionBackendName.NATIVE
    assert told == ["DIFFUSERS_ATTN_BACKEND=flex of the environment is not used: numerics.attention is sdpa"]
    assert _AttentionBackendRegistry.get_active_backend()[0] == AttentionBackendName.FLEX


def test_a_denoiser_that_asks_for_no_backend_is_refused_or_named(transformer: nn.Module) -> None:
    with pytest.raises(ConfigError, match=r"_native_math cannot be given to 'unet' \(Linear\): its attention does not"):
        attention_backend("_native_math", {"unet": nn.Linear(1, 1)}, print).__enter__()
    told: list[str] = []
    both = {"transformer": transformer, "controlnet": nn.Linear(1, 1)}
    with attention_backend("_native_math", both, told.append):
        assert told == ["numerics.attention: no effect on 'controlnet' (Linear), whose attention asks for no backend"]


def test_a_dtype_that_it_cannot_is_refused(transformer: nn.Module) -> None:
    with pytest.raises(ConfigError, match="sage takes float16 and bfloat16, and 'transformer' is float32"):
        attention_backend("sage", {"transformer": transformer}, print).__enter__()
    assert backends(transformer) == {None}


def test_the_plain_formula_is_alike_in_every_mode(
    tiny_folder: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    spec, wanted = build.wan(tiny_folder), build.two_requests(num_inference_steps=1, guidance_scale=1.0)[0]
    used: list[str] = []
    able = attention._able

    def watched(backend: Backend, *words: Any) -> list[Any]:
        used.append(backend.name)
        return able(backend, *words)

    monkeypatch.setattr(attention, "_able", watched)
    made = [build.make(spec, NumericsSpec(attention="_native_math"), wanted, mode=mode) for mode in build.MODES[::2]]
    assert used == ["_native_math"] * 2
    assert all(torch.equal(made[0].frames[0], other.frames[0]) for other in made[1:])
    plain = build.make(spec, NumericsSpec(), wanted).frames[0]
    assert torch.allclose(made[0].frames[0], plain, atol=1e-4)


def test_what_the_device_cannot_is_refused_before_anything_is_loaded(
    tiny_folder: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    spec, wanted = build.wan(tiny_folder), build.two_requests()[0]
    monkeypatch.setattr("framework.runtime.run.load_store", lambda *words, **more: pytest.fail("loaded"))
    with pytest.raises(ConfigError, match="flash cannot be used on sim"):
        build.make(spec, NumericsSpec(attention="flash"), wanted)
