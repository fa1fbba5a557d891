"""What changes the picture is applied as asked, undone where it is global, or refused by name."""

from collections.abc import Callable
from typing import Any

import pytest
import torch

from framework.errors import ConfigError
from framework.runtime.numerics import applied_numerics, refuse_unsupported
from framework.spec import NumericsSpec


def test_tiling_and_slicing_are_set_on_the_vae(loaded_stores: Callable[[str], Any]) -> None:
    store = loaded_stores("wan21")[2]
    vae = store.module("vae")
    with applied_numerics(NumericsSpec(vae_tiling=True, vae_slicing=True), store):
        assert vae.use_tiling
        assert vae.use_slicing
    with applied_numerics(NumericsSpec(vae_tiling=False, vae_slicing=False), store):
        assert not vae.use_tiling
        assert not vae.use_slicing


def test_deterministic_kernels_last_for_the_run(loaded_stores: Callable[[str], Any]) -> None:
    with applied_numerics(NumericsSpec(deterministic=True), loaded_stores("wan21")[2]):
        assert torch.are_deterministic_algorithms_enabled()
    assert not torch.are_deterministic_algorithms_enabled()


def test_what_is_not_there_yet_is_refused_all_at_once() -> None:
    wanted = NumericsSpec(attention="flash", compile="blocks", step_cache="x")
    with pytest.raises(ConfigError) as caught:
        refuse_unsupported(wanted)
    keys = [problem.key for problem in caught.value.problems]
    assert keys == [f"numerics.{name}" for name in ("attention", "compile", "step_cache")]
