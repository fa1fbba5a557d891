"""Takes what a run computes apart into JSON and tensors, and puts it together again, bit for bit. Imports torch.

Known are plain values, lists, tuples, maps, tensors, arrays of numpy and what crosses a stage boundary. What is read
may come from anywhere: it names no code, and anything unknown in it is refused.
"""

import math
from collections.abc import Mapping
from dataclasses import fields
from typing import Any

import torch
from torch import Tensor

from framework.values import Condition, Embeddings, Frames, Latents

VALUES: Mapping[str, Any] = {cls.__name__: cls for cls in (Embeddings, Condition, Latents, Frames)}
HOST, DEVICE = "host", "device"
MAX_DEPTH = 32


class CannotKeep(Exception):
    """A value that is no data: it could not be restored from a file. The text names its place and its class."""


class Damaged(ValueError):
    """What was read is no tree of ours."""


def take_apart(value: Any) -> tuple[Any, dict[str, Tensor]]:
    """Return a JSON tree and the tensors it names, on the host and contiguous.

    The same object in two places stays one. Raises `CannotKeep`.
    """
    tensors: dict[str, Tensor] = {}
    return _Taking(tensors).take(value, ""), tensors


def put_together(tree: Any, tensors: Mapping[str, Tensor], device: torch.device) -> Any:
    """Undo `take_apart`; tensors that lay on a device come to `device`. Raises `Damaged`."""
    return _Putting(tensors, device).put(tree, 0)


class _Taking:
    def __init__(self, tensors: dict[str, Tensor]) -> None:
        self._tensors = tensors
        self._known: dict[int, tuple[Any, Any]] = {}  # the object is kept, so that its id stays its own

    def take(self, value: Any, place: str) -> Any:
        if value is None or isinstance(value, bool | int | str):
            return value
        if isinstance(value, float):
            return value if math.isfinite(value) else {"float": str(value)}
        if isinstance(value, Tensor):
            return self._once(value, lambda: self._tensor(value))
        if isinstance(value, list):
            return [self.take(item, f"{place}[{index}]") for index, item in enumerate(value)]
        if isinstance(value, tuple):
            return {"tuple": [self.take(item, f"{place}[{index}]") for index, item in enumerate(value)]}
        if type(value).__name__ in VALUES and isinstance(value, VALUES[type(value).__name__]):
            named = {field.name: getattr(value, field.name) for field in fields(value)}
            return {"value": type(value).__name__, "fields": self._map(named, place)}
        if isinstance(value, Mapping):
            return {"map": self._map(value, place)}
        return self._numpy(value, place)

    def _map(self, values: Mapping[Any, Any], place: str) -> dict[str, Any]:
        odd = next((key for key in values if not isinstance(key, str)), None)
        if odd is not None:
            raise CannotKeep(f"{place or 'it'} has the key {odd!r}, which is no text")
        return {key: self.take(item, f"{place}.{key}" if place else key) for key, item in values.items()}

    def _tensor(self, tensor: Tensor) -> dict[str, Any]:
        name = f"t{len(self._tensors)}"
        on = HOST if tensor.device.type == "cpu" else DEVICE
        self._tensors[name] = tensor.detach().to("cpu", copy=True, memory_format=torch.contiguous_format)
        node: dict[str, Any] = {"tensor": name, "on": on}
        if not tensor.is_contiguous() and _is_dense(tensor):
            node["stride"] = list(tensor.stride())
        return node

    def _numpy(self, value: Any, place: str) -> Any:
        import numpy as np

        if isinstance(value, np.ndarray | np.generic) and value.dtype.kind in "biufc":
            kind = "array" if isinstance(value, np.ndarray) else "number"
            return self._once(value, lambda: {kind: self._tensor(torch.from_numpy(np.array(value, order="C")))})
        raise CannotKeep(f"{place or 'it'} is a {type(value).__name__}")

    def _once(self, value: Any, make: Any) -> Any:
        if id(value) not in self._known:
            self._known[id(value)] = value, make()
        return self._known[id(value)][1]


class _Putting:
    def __init__(self, tensors: Mapping[str, Tensor], device: torch.device) -> None:
        self._tensors, self._device = tensors, device
        self._made: dict[str, Tensor] = {}

    def put(self, node: Any, depth: int) -> Any:
        if depth > MAX_DEPTH:
            raise Damaged("nested too deeply")
        if node is None or isinstance(node, bool | int | float | str):
            return node
        if isinstance(node, list):
            return [self.put(item, depth + 1) for item in node]
        match node:
            case {"float": str(text)}:
                return float(text)
            case {"tensor": str(name)}:
                return self._tensor(name, node)
            case {"tuple": list(items)}:
                return tuple(self.put(item, depth + 1) for item in items)
            case {"map": dict(items)}:
                return {key: self.put(item, depth + 1) for key, item in items.items()}
            case {"value": str(name), "fields": dict(items)} if name in VALUES:
                return self._value(name, {key: self.put(item, depth + 1) for key, item in items.items()})
            case {"array": inner}:
                return self._array(inner, depth)
            case {"number": inner}:
                return self._array(inner, depth)[()]
        raise Damaged("it has a part of an unknown kind")

    def _tensor(self, name: str, node: Mapping[str, Any]) -> Tensor:
        if name not in self._made:
            found = self._tensors.get(name)
            if found is None:
                raise Damaged(f"the tensor '{name}' is missing")
            stride = node.get("stride")
            found = found if stride is None else _strided(found, stride)
            self._made[name] = found.to(self._device) if node.get("on") == DEVICE else found
        return self._made[name]

    def _array(self, node: Any, depth: int) -> Any:
        found = self.put(node, depth + 1)
        if not isinstance(found, Tensor):
            raise Damaged("an array without numbers")
        return found.numpy()

    def _value(self, name: str, items: Mapping[str, Any]) -> Any:
        try:
            return VALUES[name](**items)
        except TypeError as error:
            raise Damaged(f"it has a {name} with other fields") from error


def _is_dense(tensor: Tensor) -> bool:
    """Whether the elements fill a run of memory in another order, as in channels-last: a kernel may depend on it."""
    return tensor.layout == torch.strided and torch.empty_like(tensor).stride() == tensor.stride()


def _strided(tensor: Tensor, stride: Any) -> Tensor:
    whole = isinstance(stride, list) and len(stride) == tensor.ndim and all(type(one) is int for one in stride)
    if not whole or not _fills(tuple(tensor.shape), stride):
        raise Damaged("a tensor has strides that do not fit its size")
    return torch.empty_strided(tuple(tensor.shape), tuple(stride), dtype=tensor.dtype).copy_(tensor)


def _fills(shape: tuple[int, ...], stride: list[int]) -> bool:
    """Whether these strides walk over exactly as many elements as there are."""
    reach = sum((size - 1) * step for size, step in zip(shape, stride, strict=True) if size > 1)
    return 0 not in shape and min(stride, default=1) >= 0 and reach + 1 == math.prod(shape)
