"""Who owns each weight: one layer, or the rest of the component. Imports torch.

Ties are found by memory, not by name: two tensors whose bytes overlap belong together, and what two layers share
belongs to neither.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from torch import Tensor, nn

from framework.errors import ConfigError
from framework.memory.absent import Placeholder
from framework.memory.recipes import CannotRebuild, Recipe, take_apart

REST = -1
"""The owner of everything outside the layers, and of every buffer."""


@dataclass(frozen=True, slots=True)
class Place:
    """One entry of a module's `_parameters` or `_buffers`."""

    holder: dict[str, Tensor | None]
    key: str
    name: str  # dotted, in the component


@dataclass(slots=True)
class Weight:
    """One tensor object of a component with every place that holds it."""

    tensor: Tensor
    recipe: Recipe
    places: list[Place]
    is_buffer: bool
    owners: set[int]

    @property
    def name(self) -> str:
        return self.places[0].name


def collect_weights(component: str, mode: str, module: nn.Module, layers: Sequence[nn.Module] = ()) -> list[Weight]:
    """Return every parameter and buffer of `module` once, in module order, with its owners.

    Raises `ConfigError` naming component, class and mode for a weight that cannot be taken apart.
    """
    owners = _module_owners(module, layers)
    found: dict[int, Weight] = {}
    for prefix, part in module.named_modules():
        for holder, key, tensor, is_buffer in _entries(part):
            place = Place(holder, key, f"{prefix}.{key}" if prefix else key)
            if id(tensor) not in found:
                recipe = _recipe(component, mode, place.name, tensor)
                found[id(tensor)] = Weight(tensor, recipe, [], is_buffer, set())
            weight = found[id(tensor)]
            weight.places.append(place)
            weight.is_buffer |= is_buffer
            weight.owners |= {REST} if is_buffer else owners[id(part)]
    return list(found.values())


def split_by_owner(weights: Sequence[Weight], num_layers: int) -> tuple[list[list[Weight]], list[Weight]]:
    """Return the weights of each layer, and the rest: what several owners share in memory counts as rest."""
    layers: list[list[Weight]] = [[] for _ in range(num_layers)]
    rest: list[Weight] = []
    for group in joined(weights):
        owners = {owner for weight in group for owner in weight.owners}
        owner = owners.pop() if len(owners) == 1 else REST
        (rest if owner == REST else layers[owner]).extend(group)
    return layers, rest


def joined(weights: Sequence[Weight]) -> list[list[Weight]]:
    """Group weights whose bytes overlap, directly or through others; groups in the order of first appearance."""
    leader = list(range(len(weights)))

    def find(number: int) -> int:
        while leader[number] != number:
            number = leader[number]
        return number

    spans = sorted((*span, number) for number, weight in enumerate(weights) for span in _spans(weight))
    last_end, last = -1, 0
    for first, end, number in spans:
        if first < last_end:
            low, high = sorted((find(last), find(number)))
            leader[high] = low
        if end > last_end:
            last_end, last = end, number
    groups: dict[int, list[Weight]] = {}
    for number, weight in enumerate(weights):
        groups.setdefault(find(number), []).append(weight)
    return list(groups.values())


def extent_bytes(leaf: Tensor) -> int:
    """Bytes from the first element to the end of the last one, gaps of its strides included."""
    if leaf.numel() == 0:
        return 0
    last = sum((size - 1) * stride for size, stride in zip(leaf.size(), leaf.stride(), strict=True))
    return (last + 1) * leaf.element_size()


def _spans(weight: Weight) -> list[tuple[int, int]]:
    """Host addresses of each leaf with data: the first byte and one past the last."""
    leaves = [leaf for leaf in weight.recipe.leaves if leaf.numel()]
    return [(leaf.data_ptr(), leaf.data_ptr() + extent_bytes(leaf)) for leaf in leaves]


def _module_owners(module: nn.Module, layers: Sequence[nn.Module]) -> dict[int, set[int]]:
    """Layer numbers of every submodule; `REST` for what can be reached without passing through a layer."""
    owners: dict[int, set[int]] = {id(part): set() for part in module.modules()}
    for number, layer in enumerate(layers):
        for part in layer.modules():
            owners[id(part)].add(number)
    stop = {id(layer) for layer in layers}
    for part in _outside(module, stop, set()):
        owners[id(part)].add(REST)
    return owners


def _outside(module: nn.Module, stop: set[int], seen: set[int]) -> Iterator[nn.Module]:
    if id(module) in stop or id(module) in seen:
        return
    seen.add(id(module))
    yield module
    for child in module._modules.values():
        if child is not None:
            yield from _outside(child, stop, seen)


def _entries(part: nn.Module) -> Iterator[tuple[dict[str, Tensor | None], str, Tensor, bool]]:
    for holder, is_buffer in ((part._parameters, False), (part._buffers, True)):
        for key, tensor in holder.items():
            if tensor is not None:
                yield holder, key, tensor, is_buffer  # type: ignore[misc]


def _recipe(component: str, mode: str, name: str, tensor: Tensor) -> Recipe:
    assert not isinstance(tensor, Placeholder), f"component '{component}' is managed already: detach it first"
    try:
        return take_apart(tensor)
    except CannotRebuild as reason:
        raise ConfigError.of(
            f"component_residency.{component}", f"{mode} cannot move '{name}': {reason}", hint="resident works"
        ) from None
