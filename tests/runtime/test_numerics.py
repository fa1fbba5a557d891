"""VAE switches and what lasts for a run: applied as asked, undone after it, refused by name."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numerics_builders as build
import pytest
import torch
from torch import nn

from framework.errors import ConfigError
from framework.runtime.numerics import applied_numerics
from framework.runtime.vae_switches import vae_switches
from framework.spec import NumericsSpec


class Plain(nn.Module):
    """A VAE without switches."""


def test_tiling_and_slicing_are_set_on_the_vae_and_put_back(loaded_stores: Callable[[str], Any]) -> None:
    store = loaded_stores("wan21")[2]
    vae = store.module("vae")
    with applied_numerics(NumericsSpec(vae_tiling=True, vae_slicing=True), store):
        assert vae.use_tiling
        assert vae.use_slicing
    assert not vae.use_tiling
    assert not vae.use_slicing
    vae.enable_tiling()
    with applied_numerics(NumericsSpec(vae_tiling=False), store):
        assert not vae.use_tiling
    assert vae.use_tiling
    vae.disable_tiling()


def test_a_vae_without_a_switch_is_refused_by_name() -> None:
    with pytest.raises(ConfigError, match=r"numerics.vae_tiling: 'vae' \(Plain\) has no tiling; remove it"):
        vae_switches(NumericsSpec(vae_tiling=True), {"vae": Plain()}, print).__enter__()
    with vae_switches(NumericsSpec(vae_tiling=False), {"vae": Plain()}, print):
        pass  # it is off as asked


def test_one_line_names_what_a_switch_has_no_effect_on(loaded_stores: Callable[[str], Any]) -> None:
    vae = loaded_stores("wan21")[2].module("vae")
    told: list[str] = []
    with vae_switches(NumericsSpec(vae_tiling=True), {"vae": vae, "audio_vae": Plain()}, told.append):
        assert vae.use_tiling
    assert told == ["numerics.vae_tiling: no effect on 'audio_vae' (Plain), which has none"]
    told.clear()
    with vae_switches(NumericsSpec(vae_slicing=True), {}, told.append):
        assert told == ["numerics.vae_slicing: no effect, the pipeline uses no VAE"]


def test_slicing_of_two_outputs_is_alike_in_every_mode(tiny_folder: Callable[[str], Path]) -> None:
    short = {"num_inference_steps": 1, "guidance_scale": 1.0}
    spec, wanted = build.wan(tiny_folder), build.two_requests(num_outputs=2, seeds=(7, 8), **short)[0]
    made = [build.make(spec, NumericsSpec(vae_slicing=True), wanted, mode=mode) for mode in build.MODES[::2]]
    assert all(torch.equal(made[0].frames[0], other.frames[0]) for other in made[1:])
