"""What components return, as shapes, and empty returns made from them. Imports torch."""

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from framework.artifacts.tensor_tree import CannotKeep, Damaged


class Record(dict[str, Any]):
    """Named results as diffusers returns them: by name, by attribute and by number."""

    def __getattr__(self, name: str) -> Any:
        try:
            return self[name]
        except KeyError:
            raise AttributeError(name) from None

    def __getitem__(self, key: Any) -> Any:
        if isinstance(key, int | slice):
            return tuple(self.values())[key]
        return super().__getitem__(key)


class CallShapes:
    """For each component the shapes that its calls returned in the last step it took part in."""

    def __init__(self, known: Mapping[str, list[Any]]) -> None:
        self.known = {component: list(shapes) for component, shapes in known.items()}
        self._now: dict[str, list[Any]] = {}
        self._asked: dict[str, int] = {}

    def __contains__(self, component: str) -> bool:
        return component in self.known

    def add(self, component: str, output: Any) -> None:
        """A call of this step returned `output`."""
        self._now.setdefault(component, []).append(_shape(output))

    def turn(self) -> None:
        """A step is over."""
        self.known |= self._now
        self._now = {}
        self._asked = {}

    def zeros(self, component: str, device: torch.device) -> Any:
        """Return zeros for the next call of this step."""
        shapes, number = self.known[component], self._asked.get(component, 0)
        self._asked[component] = number + 1
        return _zeros(shapes[min(number, len(shapes) - 1)], device)


def fresh(value: Any, mapping: type[dict[str, Any]] = Record, _made: dict[int, Tensor] | None = None) -> Any:
    """Return a copy that shares no tensor with `value`; one tensor in two places stays one. Maps become `Record`."""
    made: dict[int, Tensor] = {} if _made is None else _made
    if isinstance(value, Tensor):
        return made.setdefault(id(value), value.clone()) if id(value) not in made else made[id(value)]
    if isinstance(value, Mapping):
        return mapping({key: fresh(item, mapping, made) for key, item in value.items()})
    if isinstance(value, list | tuple):
        return type(value)(fresh(item, mapping, made) for item in value)
    return value.copy() if type(value).__module__ == "numpy" else value


def _shape(output: Any) -> Any:
    if output is None:
        return None
    if isinstance(output, Tensor):
        return {"size": list(output.shape), "dtype": str(output.dtype).removeprefix("torch.")}
    if isinstance(output, list | tuple):
        return {"list" if isinstance(output, list) else "tuple": [_shape(item) for item in output]}
    if isinstance(output, Mapping):
        return {"map": {key: _shape(item) for key, item in output.items()}}
    raise CannotKeep(f"a call returned a {type(output).__name__}")


def _zeros(shape: Any, device: torch.device) -> Any:
    match shape:
        case None:
            return None
        case {"size": list(size), "dtype": str(dtype)} if isinstance(getattr(torch, dtype, None), torch.dtype):
            return torch.zeros(size, dtype=getattr(torch, dtype), device=device)
        case {"list": list(items)}:
            return [_zeros(item, device) for item in items]
        case {"tuple": list(items)}:
            return tuple(_zeros(item, device) for item in items)
        case {"map": dict(items)}:
            return Record({key: _zeros(item, device) for key, item in items.items()})
    raise Damaged("a call is described in an unknown way")
