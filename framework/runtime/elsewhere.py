"""Components that compute on another device than the rest of their run, and what carries values there and back.

A pipeline sees one device: its tensors are made and kept there. Where a component has a device of its own, the values
of each call are copied to it, and what the call gives is copied back. Imports torch.
"""

import copy
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from typing import Any

import torch

from framework.errors import ConfigError
from framework.graph import Graph
from framework.platforms import make_platform
from framework.platforms.protocol import Platform
from framework.runtime.budget import bounded
from framework.runtime.own_devices import own_devices
from framework.spec import EMPTY, BudgetSpec, RunSpec

CARRIED = ("diffusers.", "transformers.")
"""Packages whose plain result objects are copied with the tensors in their attributes."""


def make_elsewhere(spec: RunSpec, graph: Graph, main: Platform) -> dict[str, Platform]:
    """Return the platform of each component with a device of its own; components of one device share it.

    Raises `ConfigError` for a device that is not there, and for one of another kind than the run's.
    """
    _refuse_other_kinds(spec, main)
    made: dict[str, Platform] = {}
    found = {}
    for name, device in own_devices(spec, graph).items():
        key = f"pipeline.components.{name}.device"
        if name in spec.numerics.quantize:
            reason = f"numerics.quantize of '{name}' is for components on the device of the run"
            raise ConfigError.of(key, reason, hint="leave one of them out")
        if device not in made:
            made[device] = _make(key, device, spec)
        found[name] = made[device]
    return found


def _refuse_other_kinds(spec: RunSpec, main: Platform) -> None:
    for name, component in spec.pipeline.components.items():
        if component.device is not None and component.device.partition(":")[0] != main.kind:
            reason = f"'{component.device}' is another kind of device than that of the run, which is on {main.device}"
            raise ConfigError.of(f"pipeline.components.{name}.device", reason, hint="leave it out")


def _make(key: str, device: str, spec: RunSpec) -> Platform:
    try:
        return make_platform(device, spec.config.get("hardware"))
    except ConfigError as error:
        problem = error.problems[0]
        raise ConfigError.of(key, problem.reason, hint=problem.hint) from None
    except RuntimeError as error:  # the driver's, or that of the simulated machine
        raise ConfigError.of(key, str(error).splitlines()[0]) from None


@contextmanager
def bounded_too(elsewhere: Mapping[str, Platform], budget: BudgetSpec) -> Iterator[None]:
    """Put `budget.device` in force on the other devices of a run too: it bounds each."""
    with ExitStack() as stack:
        for platform in {id(platform): platform for platform in elsewhere.values()}.values():
            stack.enter_context(bounded(platform, BudgetSpec(device=budget.device)))
        yield


class Bridge:
    """Surrounds the calls of one component: arguments go `there`, results come `here`."""

    def __init__(self, here: torch.device, there: torch.device) -> None:
        self.here, self.there = here, there
        self._inside = False

    def __call__(self, call: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if self._inside:  # a call within a call, as in `generate`: everything is there already
            return call(*args, **kwargs)
        self._inside = True
        try:
            given, named = carry((args, kwargs), self.here, self.there)
            found = call(*given, **named)
        finally:
            self._inside = False
        return carry(found, self.there, self.here)


def carry(value: Any, source: torch.device, target: torch.device) -> Any:
    """Return `value` with every tensor on `source` copied to `target`; containers are new, all else is as it was."""
    if isinstance(value, torch.Tensor):
        return value.to(target) if value.device == source else value
    if isinstance(value, dict):
        moved = {key: carry(one, source, target) for key, one in value.items()}
        return moved if type(value) is dict else type(value)(**moved)
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return type(value)(*(carry(one, source, target) for one in value))
    if isinstance(value, list | tuple):
        return type(value)(carry(one, source, target) for one in value)
    if type(value).__module__.startswith(CARRIED) and _holds_tensors(value):
        moved_object = copy.copy(value)
        vars(moved_object).update(carry(vars(value), source, target))
        return moved_object
    return value


def _holds_tensors(value: Any) -> bool:
    """Whether it is a plain result, such as the distribution that a VAE encodes to, and no module."""
    attributes = getattr(value, "__dict__", EMPTY)
    return not isinstance(value, torch.nn.Module) and any(isinstance(one, torch.Tensor) for one in attributes.values())
