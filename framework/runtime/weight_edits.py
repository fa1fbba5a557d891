"""Adapters merged into the weights on the host, in every mode, and undone to the bit. Imports torch.

Every state is computed from the checkpoint's own weights and the list of adapters, on the host and in float32: so an
order of loads, switches and unloads leaves no trace, and all modes give the same bytes.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from torch import Tensor, nn

from framework.errors import ConfigError, FrameworkError, LoadError, did_you_mean
from framework.loading.adapters import AdapterFile, Delta, read_adapter
from framework.loading.weights import is_quantised
from framework.memory.host_store import EDIT
from framework.runtime.placed import Placed, first_line, outside_inference
from framework.runtime.store import ComponentStore
from framework.spec import LoraSpec

ORIGINALS = "weights before adapters"  # stands for a component in the books of the host's memory
Step = Callable[[Tensor], Tensor]
Terms = Mapping[str, list[tuple[float, Delta]]]
"""For each module of a component, what is added to it: a scale and a delta of each adapter."""


@dataclass(slots=True)
class _Edited:
    """One component's instance with what has been merged into it."""

    module: nn.Module
    originals: dict[str, Tensor] = field(default_factory=dict)


class WeightEdits:
    """Owns the adapters of a run. `apply` takes the whole list that is wanted; an empty one unloads all."""

    def __init__(self, store: ComponentStore, placed: Placed) -> None:
        self._store, self._placed = store, placed
        self._edited: dict[str, _Edited] = {}
        self._files: dict[Path, AdapterFile] = {}
        self._applied: tuple[LoraSpec, ...] | None = ()  # None: an edit failed half-way

    def apply(self, loras: Sequence[LoraSpec]) -> None:
        """Make `loras` the adapters of the components from the next use on; none of these may be in use.

        Everything is checked before the first weight changes, and a component whose edit fails gets its own weights
        back. Raises `ConfigError` or `LoadError` naming adapter, component and weight.
        """
        if tuple(loras) == self._applied and not self._outdated():
            return
        wanted = self._wanted(loras)
        text = "|".join(f"{lora.source}*{lora.scale}" for lora in loras)
        self._applied = None
        for component in sorted({*wanted, *self._edited}):
            self._store.mark_edited(component, "")  # what is true of it if its edit fails
            self._edit(component, wanted.get(component, {}))
            self._store.mark_edited(component, text if component in wanted else "")
        self._applied = tuple(loras)

    def apply_scaled(self, loras: Sequence[LoraSpec], scales: Sequence[float] | None) -> None:
        """Make `loras` the adapters with other scales than their own, one for each; None: their own.

        The files stay in memory from then on, for the next request may want others.
        """
        if self._files.keys() != {lora.source for lora in loras}:
            self._files = {lora.source: self._read(lora.source) for lora in loras}
        chosen = [lora.scale for lora in loras] if scales is None else scales
        self.apply([replace(lora, scale=scale) for lora, scale in zip(loras, chosen, strict=True)])

    def _outdated(self) -> bool:
        """Whether an edited component has been replaced by another instance, which carries nothing yet."""
        return any(self._store.module(name) is not edited.module for name, edited in self._edited.items())

    def _read(self, source: Path) -> AdapterFile:
        kept = self._files.get(source)
        return kept or read_adapter(source, sorted(self._store.managed), self._store.pipeline_class)

    def originals(self, component: str) -> Mapping[str, Tensor]:
        """Return what was put aside of the component's own weights, by name."""
        edited = self._edited.get(component)
        return dict(edited.originals) if edited is not None else {}

    def _wanted(self, loras: Sequence[LoraSpec]) -> dict[str, Terms]:
        """What every component gets, with names and shapes checked."""
        wanted: dict[str, dict[str, list[tuple[float, Delta]]]] = {}
        known = sorted(self._store.managed)
        for index, lora in enumerate(loras):
            file = self._read(lora.source)
            for component, deltas in _targets(index, lora, file, known).items():
                module = self._store.module(component)
                terms = wanted.setdefault(component, {})
                for name, delta in deltas.items():
                    _check(file, component, module, name, delta)
                    if lora.scale:  # adding nothing could still turn a zero's sign
                        terms.setdefault(name, []).append((lora.scale, delta))
        return dict(wanted)

    def _edit(self, component: str, terms: Terms) -> None:
        module = self._store.module(component)
        edited = self._edited.get(component)
        kept = edited.originals if edited is not None and edited.module is module else {}
        steps = {name: found for part, adds in terms.items() for name, found in _steps(part, adds)}
        names = {*steps, *kept}
        if not names:
            self._edited.pop(component, None)
            return
        strategy: Any = self._placed.strategy(component, module)
        with outside_inference(), self._placed_after(component, strategy):
            weights, origins = _reach(strategy, module, names)
            _refuse_ties(component, weights, names)
            own = [name for name in names if not _is_origin(weights[name], origins.get(name))]
            host = self._placed.resources_of(component).store.host
            host.require(ORIGINALS, component, sum(weights[name].nbytes for name in own), EDIT)
            new = {name: _original(weights[name], origins.get(name)) for name in names - kept.keys()}
            originals = {**kept, **new}
            self._edited[component] = _Edited(module, originals)  # from here on what is written can be undone
            _write(weights, originals, steps)
            if steps:
                self._edited[component] = _Edited(module, {name: originals[name] for name in steps})
            else:
                del self._edited[component]
                host.release(ORIGINALS, component)

    @contextmanager
    def _placed_after(self, component: str, strategy: Any) -> Iterator[None]:
        """Bring again what stays on the device between uses; what cannot come is built anew at its next use."""
        try:
            yield
            getattr(strategy, "place", lambda: None)()
        except BaseException as error:
            self._placed.forget(component)
            if not isinstance(error, RuntimeError):  # what torch raises for memory and for copies
                raise
            reason = f"component '{component}': its adapters cannot be merged: {first_line(error)}"
            raise FrameworkError(reason) from error


def _targets(index: int, lora: LoraSpec, file: AdapterFile, known: Sequence[str]) -> dict[str, Mapping[str, Delta]]:
    """Which components get which part of a file: those asked for, else those that the file names.

    A file for one denoiser names it `transformer` or not at all; which of two experts it is for, it cannot say.
    """
    key = f"loras[{index}].components"
    for name in lora.components:
        if name not in known:
            raise ConfigError.of(key, f"the run uses no component '{name}'", hint=did_you_mean(name, known))
    named = {name: deltas for name, deltas in file.deltas.items() if name}
    if not lora.components:
        if "" not in file.deltas and not ({"transformer"} == set(named) and "transformer_2" in known):
            return named
        experts = [name for name in known if name in ("transformer", "transformer_2", "unet")]
        if len(experts) != 1:
            reason = f"'{file.path.name}' does not say which of {', '.join(experts or known)} it is for"
            raise ConfigError.of(key, reason, hint=f"set {key}")
        return {experts[0]: file.deltas[""]}
    single = next(iter(file.deltas.values())) if len(file.deltas) == 1 else None
    chosen = {name: found for name in lora.components if (found := named.get(name, single)) is not None}
    missing = [name for name in lora.components if name not in chosen]
    if missing:
        reason = f"'{file.path.name}' has nothing for '{missing[0]}'"
        raise ConfigError.of(key, reason, hint=f"it is for {', '.join(sorted(named))}")
    return chosen


def _check(file: AdapterFile, component: str, module: nn.Module, name: str, delta: Delta) -> None:
    shapes = dict(module.named_parameters(remove_duplicate=False))
    for weight, size in _sizes(name, delta):
        if weight not in shapes:
            modules = [found.removesuffix(".weight") for found in shapes if found.endswith(".weight")]
            hint = did_you_mean(name, modules)
            raise LoadError(f"{file.path}: component '{component}' has no weight '{weight}'" + (hint and f"; {hint}"))
        if is_quantised(shapes[weight]):
            raise LoadError(f"{file.path}: '{weight}' of component '{component}' is quantised; nothing can be merged")
        if tuple(shapes[weight].shape) != size:
            has = tuple(shapes[weight].shape)
            raise LoadError(f"{file.path}: '{weight}' of component '{component}' is {has}, the adapter's is {size}")


def _sizes(name: str, delta: Delta) -> Iterable[tuple[str, tuple[int, ...]]]:
    if delta.down is not None and delta.up is not None:
        size = (delta.up.shape[0], *delta.down.shape[1:])
        if delta.up.shape[1] != delta.down.shape[0] or delta.up.numel() != delta.up.shape[0] * delta.up.shape[1]:
            size = tuple(delta.up.shape)  # no product of the two halves: shown as it is
        yield f"{name}.weight", size
    if delta.whole is not None:
        yield f"{name}.weight", tuple(delta.whole.shape)
    if delta.bias is not None:
        yield f"{name}.bias", tuple(delta.bias.shape)


def _refuse_ties(component: str, weights: Mapping[str, Tensor], names: set[str]) -> None:
    """Two names of one weight cannot carry two edits."""
    first: dict[int, str] = {}
    for name in sorted(names):
        other = first.setdefault(id(weights[name]), name)
        if other != name:
            raise LoadError(f"component '{component}': '{name}' and '{other}' are one weight; only one can be edited")


def _steps(module_name: str, adds: Sequence[tuple[float, Delta]]) -> Iterable[tuple[str, list[Step]]]:
    """Yield the weights of a module that change, each with what is done to it in turn, in float32."""
    weight = [_product(scale, delta) for scale, delta in adds if delta.down is not None]
    weight += [_sum(scale, delta.whole) for scale, delta in adds if delta.whole is not None]
    bias = [_sum(scale, delta.bias) for scale, delta in adds if delta.bias is not None]
    yield from ((f"{module_name}.{kind}", found) for kind, found in (("weight", weight), ("bias", bias)) if found)


def _product(scale: float, delta: Delta) -> Step:
    def add(weight: Tensor) -> Tensor:
        assert delta.up is not None
        assert delta.down is not None
        product = delta.up.float().flatten(1) @ delta.down.float().flatten(1)
        return weight.add(product.view_as(weight), alpha=scale * delta.factor())

    return add


def _sum(scale: float, what: Tensor) -> Step:
    return lambda weight: weight.add(what.float(), alpha=scale)


def _write(weights: Mapping[str, Tensor], originals: Mapping[str, Tensor], steps: Mapping[str, Sequence[Step]]) -> None:
    """Write every weight of `originals` with its steps; after a failure all are as they were before any edit."""
    try:
        for name in sorted(originals):
            weights[name].copy_(_merged(originals[name], steps.get(name, ())))
    except BaseException:
        for name, original in originals.items():
            weights[name].copy_(original)
        raise


def _merged(original: Tensor, steps: Sequence[Step]) -> Tensor:
    if not steps:
        return original
    merged = original.float()
    for step in steps:
        merged = step(merged)
    return merged.to(original.dtype)


def _reach(strategy: Any, module: nn.Module, names: set[str]) -> tuple[dict[str, Tensor], Mapping[str, Tensor]]:
    """The weights to write to: the master on the host, or where there is none the weights in the module.

    Besides, what the mapped checkpoint file has, which need not be kept a second time.
    """
    reach = getattr(strategy, "host_weights", None)
    if reach is None:
        return dict(module.named_parameters(remove_duplicate=False)), {}
    return reach(names), strategy.origins()


def _original(weight: Tensor, origin: Tensor | None) -> Tensor:
    if origin is not None and _is_origin(weight, origin):
        return origin
    return weight.detach().cpu().clone()


def _is_origin(weight: Tensor, origin: Tensor | None) -> bool:
    """Whether the mapped checkpoint file has the weight as it is, so that no copy of it need be kept."""
    return origin is not None and origin.dtype == weight.dtype
