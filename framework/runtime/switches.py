"""diffusers' own switches of placement, refused by name where a plan places the components. Imports torch."""

from collections.abc import Callable
from typing import Any, NoReturn

import torch

from framework.errors import ConfigError

PIPELINE_SWITCHES = (
    "enable_model_cpu_offload",
    "enable_sequential_cpu_offload",
    "enable_group_offload",
    "remove_all_hooks",
    "reset_device_map",
    "to",
)
COMPONENT_SWITCHES = ("enable_group_offload", "cpu", "cuda")
MODES = "resident, component-offload or layerwise-offload"


def refuse_pipeline_switches(view: Any) -> None:
    """Make every switch of a pipeline over managed components raise `ConfigError` naming the key to use."""
    for name in PIPELINE_SWITCHES:
        if hasattr(type(view), name):
            vars(view)[name] = _refusing("component_residency", f"the pipeline's '{name}'")


def refuse_component_switches(module: torch.nn.Module, component: str) -> tuple[str, ...]:
    """Make the switches that the module's class has raise `ConfigError`; return the names put on the module."""
    found = tuple(name for name in COMPONENT_SWITCHES if hasattr(type(module), name))
    for name in found:
        vars(module)[name] = _refusing(f"component_residency.{component}", f"'{name}' of component '{component}'")
    return found


def refuse_move(component: str, wanted: torch.device, own: torch.device) -> None:
    """Raise `ConfigError` where `wanted` is another device than the one that the component computes on."""
    if wanted.type != own.type or wanted.index not in (None, own.index or 0):
        raise _error(f"component_residency.{component}", f"'to({wanted})' of component '{component}'")


def _refusing(key: str, what: str) -> Callable[..., NoReturn]:
    def refuse(*args: Any, **kwargs: Any) -> NoReturn:
        raise _error(key, what)

    return refuse


def _error(key: str, what: str) -> ConfigError:
    reason = f"{what} would undo the plan that has placed the weights"
    return ConfigError.of(key, reason, hint=f"set {key} to {MODES}" if "." in key else f"set {key}.NAME to {MODES}")
