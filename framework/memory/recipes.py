"""How one weight is taken apart into plain tensors and put together again elsewhere. Imports torch.

Plain parameters and buffers, parameter subclasses (class and attributes are kept) and traceable wrapper subclasses
(quantised tensors made of several plain ones). What cannot be rebuilt is refused by name.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import is_traceable_wrapper_subclass

Build: TypeAlias = Callable[[Sequence[Tensor]], Tensor]


class CannotRebuild(Exception):
    """A weight whose class cannot be taken apart; the message is the reason."""


@dataclass(frozen=True, slots=True)
class Recipe:
    """`leaves` are the plain tensors that hold the data; `build` makes the weight from copies of them elsewhere.

    `build` keeps nothing of the leaves, so that dropping a recipe's leaves frees their memory.
    """

    leaves: tuple[Tensor, ...]
    build: Build
    attributes: Mapping[str, Any] = field(default_factory=dict)


def take_apart(tensor: Tensor) -> Recipe:
    """Return the recipe of a parameter or buffer; leaves lie on the host. Raises `CannotRebuild`."""
    if tensor.device.type == "meta":
        raise CannotRebuild("it lies on the meta device, without data")
    if tensor.device.type != "cpu":
        plain = torch.empty(0, device=tensor.device)
        if type(plain) is not Tensor and isinstance(tensor, type(plain)):
            return _from_device(tensor, plain)
    if is_traceable_wrapper_subclass(tensor):
        return _wrapper(tensor)
    attributes = dict(vars(tensor))
    held = [name for name, value in attributes.items() if _holds_tensor(value)]
    if held:
        raise CannotRebuild(f"{type(tensor).__name__} keeps tensors in its attribute '{held[0]}'")
    leaf = tensor.detach()
    leaf = (leaf if type(leaf) is Tensor else leaf.as_subclass(Tensor)).cpu()
    return _single(type(tensor), leaf, attributes)


def _from_device(tensor: Tensor, plain: Tensor) -> Recipe:
    """A tensor on a device whose tensors are of a class of their own, as `plain` is: it may be of another one too."""
    inner = vars(plain)
    attributes = {name: value for name, value in vars(tensor).items() if name not in inner}
    cls: type[Tensor] = type(tensor).__bases__[0]
    if type(tensor) is type(plain):
        cls = nn.Parameter if isinstance(tensor, nn.Parameter) else Tensor
        attributes.pop("_is_param", None)
    with torch._C.DisableTorchFunctionSubclass():  # a class may want to wrap what comes out, which is of another now
        leaf = tensor.detach().cpu()
    return _single(cls, leaf, attributes)


def _single(cls: type[Tensor], leaf: Tensor, attributes: Mapping[str, Any]) -> Recipe:
    if cls is Tensor:
        return Recipe((leaf,), lambda leaves: _with(leaves[0], attributes), attributes)
    if cls is nn.Parameter and not attributes:
        return Recipe((leaf,), lambda leaves: nn.Parameter(leaves[0], requires_grad=False))
    return Recipe((leaf,), lambda leaves: _subclass(cls, leaves[0], attributes), attributes)


def _wrapper(tensor: Tensor) -> Recipe:
    """A tensor made of others, such as torchao's: flattened by its own methods, to any depth."""
    cls, size, stride = type(tensor), tensor.size(), tensor.stride()
    names, context = tensor.__tensor_flatten__()  # type: ignore[attr-defined]
    inner = [take_apart(getattr(tensor, name)) for name in names]
    is_parameter = isinstance(tensor, nn.Parameter)

    def build(leaves: Sequence[Tensor]) -> Tensor:
        parts: dict[str, Tensor] = {}
        first = 0
        for name, recipe in zip(names, inner_builds, strict=True):
            count, make = recipe
            parts[name] = make(leaves[first : first + count])
            first += count
        built: Tensor = cls.__tensor_unflatten__(parts, context, size, stride)  # type: ignore[attr-defined]
        return nn.Parameter(built, requires_grad=False) if is_parameter else built

    inner_builds = [(len(recipe.leaves), recipe.build) for recipe in inner]
    return Recipe(tuple(leaf for recipe in inner for leaf in recipe.leaves), build)


def _subclass(cls: type[Tensor], leaf: Tensor, attributes: Mapping[str, Any]) -> Tensor:
    """Give `leaf` the class `cls` without calling its constructor, whose arguments are its own affair."""
    if type(leaf) is Tensor:
        made: Tensor = Tensor._make_subclass(cls, leaf, False)
    else:
        made = leaf.detach()  # the execution device has a tensor class of its own: be both
        made.__class__ = _both(cls, type(leaf))
        if issubclass(cls, nn.Parameter):
            made._is_param = True
    return _with(made, attributes)


def _both(cls: type[Tensor], device_class: type[Tensor]) -> type[Tensor]:
    return device_class if cls is nn.Parameter else type(cls.__name__, (cls, device_class), {})


def _with(tensor: Tensor, attributes: Mapping[str, Any]) -> Tensor:
    for name, value in attributes.items():
        setattr(tensor, name, value)
    return tensor


def _holds_tensor(value: object, depth: int = 2) -> bool:
    """Whether an attribute would leave data behind: a tensor, or an object or container that holds one."""
    if isinstance(value, Tensor):
        return True
    if isinstance(value, list | tuple | set):
        return any(_holds_tensor(item, depth) for item in value)
    if isinstance(value, dict):
        return any(_holds_tensor(item, depth) for item in value.values())
    inner = getattr(value, "__dict__", None)
    return (
        depth > 0
        and isinstance(inner, dict)
        and not isinstance(value, type | torch.nn.Module)
        and any(_holds_tensor(item, depth - 1) for item in inner.values())
    )
