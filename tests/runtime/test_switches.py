"""diffusers' own ways to move a pipeline or a component are refused with the key that decides it here."""

from collections.abc import Callable
from typing import Any

import pytest
import spec_builders
import torch
from torch import nn

from framework.errors import ConfigError
from framework.runtime.hook import attach_hook, remove_hook

Named = Callable[[str], Any]


@pytest.mark.parametrize(
    ("switch", "arguments"),
    [
        ("enable_model_cpu_offload", ()),
        ("enable_sequential_cpu_offload", ()),
        ("enable_group_offload", (torch.device("cpu"),)),
        ("remove_all_hooks", ()),
        ("reset_device_map", ()),
        ("to", ("cpu",)),
    ],
)
def test_a_switch_of_the_pipeline_names_the_key(loaded_stores: Named, switch: str, arguments: tuple[Any, ...]) -> None:
    view = loaded_stores("wan21")[2].pipeline_view()
    with pytest.raises(ConfigError, match=rf"^component_residency: the pipeline's '{switch}' would undo .*NAME to res"):
        getattr(view, switch)(*arguments)


@pytest.mark.parametrize("component", ["transformer", "vae"])
def test_group_offload_of_a_component_names_the_key(loaded_stores: Named, component: str) -> None:
    module = loaded_stores("wan21")[2].module(component)
    with pytest.raises(ConfigError, match=rf"^component_residency\.{component}: 'enable_group_offload' of"):
        module.enable_group_offload(torch.device("cpu"))


def test_another_device_is_refused_and_the_own_one_is_not() -> None:
    module = nn.Linear(2, 2)
    attach_hook(module, "vae", torch.device("cpu"))
    assert module.to("cpu", torch.float64).weight.dtype == torch.float64
    assert module.to(torch.device("cpu", 0)) is module
    for wanted in ("meta", "cuda:1"):
        with pytest.raises(ConfigError, match=rf"^component_residency\.vae: 'to\({wanted}\)' of component 'vae'"):
            module.to(wanted)
    for switch in (module.cpu, module.cuda):
        with pytest.raises(ConfigError, match=r"^component_residency\.vae: "):
            switch()
    remove_hook(module)
    assert module.cpu().to("meta").weight.is_meta


def test_a_run_goes_through_a_view_that_refuses_them(loaded_stores: Named) -> None:
    spec_builders.run(loaded_stores("wan21"), spec_builders.request())
