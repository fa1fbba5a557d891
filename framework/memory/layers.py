"""The layers of a component: which modules are streamed, and what is refused by name before a run. Imports torch."""

from collections import OrderedDict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from types import FunctionType

from torch import Tensor, nn

from framework.errors import ConfigError, did_you_mean
from framework.memory.layer_table import layer_paths

MIN_COVERAGE = 0.1
"""Below this share of the weights, streaming the layers saves nothing worth its cost."""

REGISTERED = ("_parameters", "_buffers", "_modules")
MODEL_CODE = ("diffusers.models.", "transformers.models.")
PLAIN = frozenset({bool, int, float, str, type(None), FunctionType})
CONTAINERS = frozenset({dict, OrderedDict, list, tuple, set})
OTHER_MODES = "component-offload and resident work"


@dataclass(frozen=True, slots=True)
class Layer:
    """One streamed unit: `name` is its dotted path in the component, `stack` the number of its block list."""

    name: str
    stack: int
    module: nn.Module


@dataclass(frozen=True, slots=True)
class Stack:
    """One block list, or a single block, in call order as far as its names tell."""

    path: str
    layers: tuple[Layer, ...]


def find_stacks(component: str, module: nn.Module, paths: Sequence[str] = ()) -> tuple[Stack, ...]:
    """Return the stacks of `module`: those of `paths` (the YAML's `layers`), else those known for its class.

    Raises `ConfigError` naming component and path where there is none, it is empty, or stacks overlap.
    """
    wanted = tuple(paths) or layer_paths(type(module).__name__)
    if not wanted:
        raise _refusal(component, f"{type(module).__name__} has no known list of layers", _list_hint(component, module))
    stacks = [_stack(component, module, path, number) for number, path in enumerate(wanted)]
    _refuse_overlap(component, stacks)
    return tuple(stacks)


def check_coverage(component: str, layer_bytes: int, total_bytes: int) -> None:
    """Refuse a component whose layers hold less than `MIN_COVERAGE` of its device bytes."""
    if total_bytes and layer_bytes < MIN_COVERAGE * total_bytes:
        share = f"{100 * layer_bytes / total_bytes:.1f} %"
        raise _refusal(component, f"its layers hold only {share} of its weights", OTHER_MODES)


def refuse_references(component: str, mode: str, module: nn.Module) -> None:
    """Refuse a module that keeps its own weights in plain attributes, which no swap of parameters can reach.

    Raises `ConfigError` naming module, attribute and class.
    """
    managed = {id(tensor) for part in module.modules() for tensor in _registered(part)}
    for name, part in module.named_modules():
        for attribute, value in vars(part).items():
            if attribute not in REGISTERED and managed & _tensor_ids(value):
                where = f"{name or type(part).__name__}.{attribute}"
                reason = f"{mode} cannot reach the weights that '{where}' ({type(part).__name__}) refers to directly"
                raise ConfigError.of(f"component_residency.{component}", reason, hint="resident works")


def loose_tensors(module: nn.Module) -> dict[str, Tensor]:
    """Return the tensors kept as plain attributes (lazily built rope tables, say), by dotted name.

    Those in lists, tuples and maps have their place behind the name, those of a model's helper objects (the positions
    of Z-Image) their attribute. No strategy moves them: they lie where the forward has made them. The module's own
    weights under another name are none.
    """
    found: dict[str, Tensor] = {}
    seen: set[int] = set()
    managed = {id(tensor) for part in module.modules() for tensor in _registered(part)}
    for name, part in module.named_modules():
        for attribute, value in vars(part).items():
            if attribute not in REGISTERED and not _is_plain(value):
                found.update(_tensors_in(f"{name}.{attribute}" if name else attribute, value, seen))
    return {name: tensor for name, tensor in found.items() if id(tensor) not in managed}


def _is_plain(value: object) -> bool:
    """Whether a look at its class is enough: of a thousand modules nearly every attribute is a number or empty."""
    kind = type(value)
    return kind in PLAIN or (kind in CONTAINERS and not value)


def _tensors_in(name: str, value: object, seen: set[int]) -> Iterator[tuple[str, Tensor]]:
    """Name the tensors in `value`; `seen` are the helper objects that were looked into already."""
    if isinstance(value, Tensor):
        yield name, value
    elif isinstance(value, list | tuple):
        for number, item in enumerate(value):
            yield from _tensors_in(f"{name}[{number}]", item, seen)
    elif isinstance(value, dict):
        for key, item in value.items():
            yield from _tensors_in(f"{name}[{key}]", item, seen)
    elif _is_helper(value) and id(value) not in seen:
        seen.add(id(value))
        for attribute, item in vars(value).items():
            yield from _tensors_in(f"{name}.{attribute}", item, seen)


def _is_helper(value: object) -> bool:
    """Whether `value` is an object of a model's own code that is no module."""
    own = type(value).__module__.startswith(MODEL_CODE)
    return own and hasattr(value, "__dict__") and not isinstance(value, nn.Module)


def _stack(component: str, module: nn.Module, path: str, number: int) -> Stack:
    for choice in path.split("|"):
        found = _submodule(module, choice)
        if found is None:
            continue
        if not isinstance(found, nn.ModuleList | nn.Sequential):
            return Stack(choice, (Layer(choice, number, found),))
        if not len(found):
            raise _refusal(component, f"its list of layers '{choice}' is empty", OTHER_MODES)
        return Stack(choice, tuple(Layer(f"{choice}.{i}", number, layer) for i, layer in enumerate(found)))
    hint = did_you_mean(path, _lists(module)) or _list_hint(component, module)
    raise _refusal(component, f"it has no list of layers '{path}'", hint)


def _submodule(module: nn.Module, path: str) -> nn.Module | None:
    try:
        return module.get_submodule(path)
    except AttributeError:
        return None


def _refuse_overlap(component: str, stacks: Sequence[Stack]) -> None:
    """A module may belong to one layer only, or two layers would move the same weights."""
    owner: dict[int, str] = {}
    for layer in (layer for stack in stacks for layer in stack.layers):
        if id(layer.module) in owner:
            raise _refusal(component, f"'{layer.name}' and '{owner[id(layer.module)]}' are one module", OTHER_MODES)
        owner[id(layer.module)] = layer.name
    for layer in (layer for stack in stacks for layer in stack.layers):
        for part in layer.module.modules():
            outer = owner.get(id(part), layer.name)
            if outer != layer.name:
                raise _refusal(
                    component, f"layer '{outer}' lies inside layer '{layer.name}'", "name only the outer list"
                )


def _lists(module: nn.Module) -> list[str]:
    kinds = (nn.ModuleList, nn.Sequential)
    return [name for name, part in module.named_modules() if isinstance(part, kinds) and name]


def _list_hint(component: str, module: nn.Module) -> str:
    lists = [name for name in _lists(module) if not any(part.isdecimal() for part in name.split("."))]
    if not lists:
        return OTHER_MODES
    return f"name its lists in pipeline.components.{component}.layers (it has {', '.join(lists[:6])}); {OTHER_MODES}"


def _refusal(component: str, reason: str, hint: str) -> ConfigError:
    return ConfigError.of(f"component_residency.{component}", f"layerwise-offload cannot be used: {reason}", hint=hint)


def _registered(part: nn.Module) -> list[Tensor]:
    return [tensor for group in (part._parameters, part._buffers) for tensor in group.values() if tensor is not None]


def _tensor_ids(value: object) -> set[int]:
    if isinstance(value, Tensor):
        return {id(value)}
    if isinstance(value, list | tuple):
        return {number for item in value for number in _tensor_ids(item)}
    if isinstance(value, dict):
        return {number for item in value.values() for number in _tensor_ids(item)}
    return set()
