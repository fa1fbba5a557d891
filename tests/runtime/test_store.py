"""Views over one set of components, and the hook that diffusers asks for the device."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from diffusers.utils.torch_utils import get_module_execution_device

Named = Callable[[str], Any]


def test_views_share_components_and_are_built_once(loaded_stores: Named) -> None:
    store = loaded_stores("wan22")[2]
    view = store.pipeline_view()
    assert view is store.pipeline_view()
    assert view.vae is store.module("vae")
    assert view.config.boundary_ratio == 0.875
    lean = store.pipeline_view(without=frozenset({"text_encoder"}))
    assert lean.text_encoder is None
    assert lean.transformer is view.transformer


def test_an_unmanaged_name_is_no_module(loaded_stores: Named) -> None:
    with pytest.raises(KeyError):
        loaded_stores("wan22")[2].module("tokenizer")


def test_diffusers_reads_the_device_from_our_hook(loaded_stores: Named) -> None:
    store = loaded_stores("wan21")[2]
    kept = {name: hook.execution_device for name, hook in store.hooks.items()}
    try:
        for hook in store.hooks.values():
            hook.execution_device = torch.device("meta")
        assert store.pipeline_view()._execution_device == torch.device("meta")
        assert get_module_execution_device(store.module("text_encoder")) == torch.device("meta")
    finally:
        for name, hook in store.hooks.items():
            hook.execution_device = kept[name]


@pytest.mark.parametrize("entry", ["encode", "decode"])
def test_the_vaes_other_entry_points_are_announced(loaded_stores: Named, entry: str) -> None:
    store = loaded_stores("wan21")[2]
    called: list[str] = []
    store.hooks["vae"].on_call = called.append
    size = {"encode": (1, 3, 1, 16, 16), "decode": (1, 16, 1, 2, 2)}[entry]
    try:
        with torch.inference_mode():
            getattr(store.module("vae"), entry)(torch.zeros(size))
    finally:
        store.hooks["vae"].on_call = None
    assert called == ["vae"]


def test_schedulers_and_views_let_go_of_a_request_when_it_ends(loaded_stores: Named) -> None:
    store = loaded_stores("wan22")[2]
    view = store.pipeline_view()
    for _ in range(2):  # the scheduler fills one of its first lists in place
        view.scheduler.set_timesteps(2)
        view._current_timestep = view.scheduler.timesteps[0]
        view.scheduler.step(torch.ones(1, 16), view._current_timestep, torch.zeros(1, 16))
        assert view.scheduler.model_outputs != [None, None]
        store.end_request()
        assert view._current_timestep is None
        assert view.scheduler.model_outputs == view.scheduler.timestep_list == [None, None]
        assert view.scheduler.last_sample is None
        assert view.scheduler.num_inference_steps is None
