"""The one owner of a pipeline's components; stages see them through thin diffusers pipelines. Imports torch."""

import inspect
from collections.abc import Mapping
from typing import Any

import torch
from torch import nn

from framework.loading.spares import Spares
from framework.runtime.hook import Bridge, ManagedHook, attach_hook, remove_hook
from framework.runtime.switches import refuse_pipeline_switches
from framework.spec import EMPTY

EDITED = "; edited: "  # between the identity of a component's files and that of what was merged


class ComponentStore:
    """Holds modules, tokenizers and the scheduler under their names in `model_index.json`; None for what is left out.

    `managed` names the modules whose placement the residency manager decides; `options` are the plain arguments of the
    pipeline's constructor; `identities` change with a component's files. Every module carries a `ManagedHook`.
    """

    def __init__(
        self,
        *,
        pipeline_class: Any,
        components: Mapping[str, Any],
        options: Mapping[str, Any],
        managed: frozenset[str],
        device: torch.device,
        identities: Mapping[str, str],
        weights_keys: Mapping[str, str | None] = EMPTY,
    ) -> None:
        self.pipeline_class = pipeline_class
        self.components = dict(components)
        self.options = dict(options)
        self.managed = set(managed)
        self.device = device
        self._identities = dict(identities)
        self._weights_keys = dict(weights_keys)
        self._num_replaced = 0
        self._bridges: dict[str, Bridge] = {}
        self._views: dict[tuple[Any, frozenset[str]], Any] = {}
        schedulers = (part for part in self.components.values() if hasattr(part, "set_timesteps"))
        self._unused_schedulers = [(part, _state(vars(part))) for part in schedulers]
        self.hooks: dict[str, ManagedHook] = {
            name: attach_hook(module, name, device)
            for name, module in self.components.items()
            if isinstance(module, nn.Module)
        }

    def put_elsewhere(self, name: str, bridge: Bridge) -> None:
        """Have the calls of `name` made on another device, by `bridge`; a module that replaces it too."""
        self._bridges[name] = self.hooks[name].bridge = bridge

    def module(self, name: str) -> nn.Module:
        """Return the managed module called `name`. Raises KeyError for any other name."""
        if name not in self.managed:
            raise KeyError(name)
        found = self.components[name]
        assert isinstance(found, nn.Module)
        return found

    def modules(self) -> dict[str, nn.Module]:
        return {name: self.module(name) for name in sorted(self.managed)}

    def replace(self, name: str, module: nn.Module) -> None:
        """Make `module` the component `name`, in every view too; it is frozen, and an earlier one loses our hook.

        Raises KeyError for a name that the pipeline does not have.
        """
        before = self.components[name]
        hook = attach_hook(module.eval().requires_grad_(False), name, self.device)
        hook.bridge = self._bridges.get(name)
        if isinstance(before, nn.Module):
            remove_hook(before)
        self.components[name], self.hooks[name] = module, hook
        self.managed.add(name)
        self._weights_keys.pop(name, None)
        self._num_replaced += 1
        self._identities[name] = f"{name}: instance {self._num_replaced}"
        for view in self._views.values():
            if getattr(view, name, None) is before:
                view.register_modules(**{name: module})

    def end_request(self) -> None:
        """Make schedulers and views let go of the request they served: they keep latents of it on the device."""
        for scheduler, unused in self._unused_schedulers:
            vars(scheduler).clear()
            vars(scheduler).update(_state(unused))
        for view in self._views.values():
            vars(view).update({name: None for name, value in vars(view).items() if isinstance(value, torch.Tensor)})

    def mark_edited(self, name: str, edits: str) -> None:
        """Say that the weights of `name` carry `edits` from now on, an empty text for none."""
        plain = self._identities.get(name, name).partition(EDITED)[0]
        self._identities[name] = plain + EDITED + edits if edits else plain

    def identity(self, *names: str) -> tuple[str, ...]:
        """Return what tells these components apart from any others, as a part of cache keys."""
        return tuple(self._identities.get(name, name) for name in names)

    def give_away(self, spares: Spares) -> None:
        """Give the modules that are as their files have them to `spares`; the store is of no use after it."""
        for name, key in self._weights_keys.items():
            if key is not None and name in self.managed and EDITED not in self._identities.get(name, ""):
                module = self.components.pop(name)
                remove_hook(module)
                spares.put(key, module)

    def pipeline_view(self, cls: Any = None, without: frozenset[str] = frozenset()) -> Any:
        """Return a pipeline of `cls` (the checkpoint's own by default) over the store's components.

        `without` are given as None. Views share everything and are kept, so asking again costs a look-up.
        """
        chosen = cls or self.pipeline_class
        key = (chosen, without)
        if key not in self._views:
            self._views[key] = self._build_view(chosen, without)
        return self._views[key]

    def views(self) -> tuple[Any, ...]:
        """Return the pipelines that have been asked for so far."""
        return tuple(self._views.values())

    def _build_view(self, cls: Any, without: frozenset[str]) -> Any:
        arguments: dict[str, Any] = {}
        for name in list(inspect.signature(cls.__init__).parameters)[1:]:
            if name in self.components:
                arguments[name] = None if name in without else self.components[name]
            elif name in self.options:
                arguments[name] = self.options[name]
        view = cls(**arguments)
        view.set_progress_bar_config(disable=True)
        refuse_pipeline_switches(view)
        return view


def _state(attributes: Mapping[str, Any]) -> dict[str, Any]:
    """The attributes of a scheduler, lists copied: it fills some of them in place."""
    return {name: list(value) if isinstance(value, list) else value for name, value in attributes.items()}
