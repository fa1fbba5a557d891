"""One operator on shapes: what it allocates, touches and computes, worked out once for like operands. Imports torch."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch

from framework.errors import PlanError
from framework.planning.profile_tape import WAIT, Row
from framework.planning.profile_tensor import (
    KEPT_ELEMENTS,
    ShapeTensor,
    alias,
    dtype_name,
    fresh,
    on_meta,
    touched_bytes,
)
from framework.platforms.sim.recipes import Recipe

if TYPE_CHECKING:
    from framework.planning.profile_dispatch import ShapePass

aten = torch.ops.aten

ALL = frozenset({aten.all.default, aten.all.dim, aten.all.dims})
ALL_OR_ANY = ALL | {aten.any.default, aten.any.dim, aten.any.dims}
"""Asked whether all numbers are right, or any is wrong: of numbers nobody knows, all are right and none is wrong."""

_INERT = (int, float, bool, type(None), str, torch.dtype)
_UNKNOWABLE = (torch.Tag.data_dependent_output, torch.Tag.dynamic_output_shape)
_Layout = tuple[tuple[int, ...], tuple[int, ...], torch.dtype]


@dataclass(frozen=True, slots=True)
class Outcome:
    """What comes of operands alike: the layouts of new tensors (None: the written one is the result), and the cost."""

    layouts: tuple[_Layout, ...] | None
    kind: type | None  # of the collection that holds them, None for a single tensor
    row: Row


class Operator:
    """One operator: its operands without their wrappers, then what it allocates, touches and computes."""

    __slots__ = ("args", "func", "kwargs", "pass_", "recipe", "tensors")

    def __init__(
        self, pass_: "ShapePass", func: Any, recipe: Recipe, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> None:
        self.pass_, self.func, self.recipe, self.args, self.kwargs = pass_, func, recipe, args, kwargs
        self.tensors: list[ShapeTensor] = []
        _collect((*args, *kwargs.values()), self.tensors)

    def run(self) -> Any:
        recipe, known = self.recipe, all(tensor.is_known for tensor in self.tensors)
        if recipe.view:
            return self._view(self.func(*self._all_raw(known), **self._options(known)))
        known = known and max(tensor.numel() for tensor in self.tensors) <= KEPT_ELEMENTS
        key = None if known else self._key()
        if key is not None:
            outcome = self.pass_.outcomes.get(key)
            if outcome is not None:
                return self._again(outcome)
        raw, options = self._all_raw(known), self._options(known)
        if self._place(options, known) == "host":
            return self.func(*raw, **{**options, "device": "cpu"})
        if recipe.allocates_only:
            return fresh(self.func(*raw, **options), self.pass_.memory)
        return self._kernel(self._result(raw, options, known), known, key)

    def _result(self, raw: list[Any], options: dict[str, Any], known: bool) -> Any:
        if known:
            return self.func(*raw, **options)
        if self.func in ALL_OR_ANY:
            return torch.full(_reduced(self.func, raw), self.func in ALL, dtype=torch.bool)
        if any(tag in self.func.tags for tag in _UNKNOWABLE) and not self.recipe.indexes:
            raise PlanError(f"{self.recipe.name} depends on numbers that nobody knows before a run")
        return self.func(*raw, **options)

    def _key(self) -> Any:
        """What the outcome depends on, None where that is more than layouts and plain values."""
        recipe = self.recipe
        if recipe.indexes or recipe.allocates_only or self.func in ALL_OR_ANY or "device" in self.kwargs:
            return None
        options = tuple((name, _description(value)) for name, value in self.kwargs.items()) if self.kwargs else ()
        return self.func, tuple(_description(value) for value in self.args), options

    def _again(self, outcome: Outcome) -> Any:
        self._read_weights()
        self.pass_.tape.add(*outcome.row)
        if outcome.layouts is None:
            written = self._written()
            for tensor in written:
                tensor.block.unknown = True
            return written[0]
        made = [
            fresh(torch.empty_strided(shape, strides, dtype=dtype, device="meta"), self.pass_.memory)
            for shape, strides, dtype in outcome.layouts
        ]
        return made[0] if outcome.kind is None else outcome.kind(made)

    def _all_raw(self, known: bool) -> list[Any]:
        return [self._raw(value, known) for value in self.args]

    def _options(self, known: bool) -> dict[str, Any]:
        return {name: self._raw(value, known) for name, value in self.kwargs.items()} if self.kwargs else {}

    def _raw(self, value: Any, known: bool) -> Any:
        kind = type(value)
        if kind in _INERT:
            return value
        if isinstance(value, ShapeTensor):
            if known:
                return value.raw
            raw = value.numbers()
            return raw if raw.device.type == "meta" or self._is_mask(value) else on_meta(raw)
        if isinstance(value, torch.Tensor):
            if value.dim() and self.recipe.indexes:
                return self._raw(self._bring(value), known)
            assert not value.dim() or value.device.type == "meta", f"{self.recipe.name}: a tensor lies on the host"
            return value.to("meta") if not known and value.dim() == 0 else value
        if isinstance(value, list | tuple):
            return self._expanded([self._raw(entry, known) for entry in value])
        return value

    def _is_mask(self, value: ShapeTensor) -> bool:
        return self.recipe.indexes and value.dtype in (torch.bool, torch.uint8) and value.is_known

    def _bring(self, index: torch.Tensor) -> ShapeTensor:
        """Indices may lie on the host: they are copied."""
        return self.pass_.to_device(index)

    def _expanded(self, entries: list[Any]) -> list[Any]:
        """Masks become the indices they stand for: their number is what the result's shape depends on."""
        if not self.recipe.indexes or not any(_is_known_mask(entry) for entry in entries):
            return entries
        self.pass_.tape.values_read = True
        self.pass_.tape.add(WAIT)
        found: list[Any] = []
        for entry in entries:
            places = entry.nonzero(as_tuple=True) if _is_known_mask(entry) else (entry,)
            found += [place.to("meta") if isinstance(place, torch.Tensor) else place for place in places]
        return found

    def _place(self, options: dict[str, Any], known: bool) -> str:
        """Read the `device` of a factory such as `zeros_like`."""
        wanted = options.pop("device", None)
        options.pop("pin_memory", None)
        options.pop("generator", None)
        if wanted is None:
            return "device"
        here = torch.device(wanted).type == "sim"
        if here:
            options["device"] = "cpu" if known else "meta"
        return "device" if here else "host"

    def _view(self, out: Any) -> Any:
        base = self.tensors[0]
        if isinstance(out, torch.Tensor):
            return alias(out, base)
        return [alias(part, base) for part in out]

    def _kernel(self, out: Any, known: bool, key: Any) -> Any:
        written = self._written()
        for tensor in written:
            tensor.block.unknown = tensor.block.unknown or not known
        self._read_weights()
        size_bytes = sum(touched_bytes(tensor) for tensor in self.tensors)
        result, added = self._wrapped(out, written)
        flops, kind = 0.0, ""
        if self.recipe.flops is not None and isinstance(out, torch.Tensor):
            kind, count = self.recipe.flops
            flops = count(self.args, out)
        row = (kind, flops, size_bytes + (0 if written else added), dtype_name(self.tensors[0].dtype))
        self.pass_.tape.add(*row)
        if key is not None:
            self._remember(key, out, result, row)
        if isinstance(out, bool | int | float) or self.recipe.waits:
            self.pass_.tape.add(WAIT)
            self.pass_.tape.values_read = True
        return result

    def _read_weights(self) -> None:
        for tensor in self.tensors:
            if tensor.block.owner is not None:
                self.pass_.tape.read(tensor.block.owner)

    def _remember(self, key: Any, out: Any, result: Any, row: Row) -> None:
        """Keep what came of it, unless a result lies in the memory of an operand or of another result."""
        parts = [result] if isinstance(out, torch.Tensor) else result
        if isinstance(out, torch.Tensor) and any(result is tensor for tensor in self._written()[:1]):
            self.pass_.outcomes[key] = Outcome(None, None, row)
            return
        if not isinstance(parts, list | tuple) or not all(isinstance(part, ShapeTensor) for part in parts):
            return
        blocks = {id(part.block) for part in parts}
        dense = all(part.numel() * part.element_size() == part.block.nbytes for part in parts)
        if self._written() or len(blocks) < len(parts) or blocks & {id(t.block) for t in self.tensors} or not dense:
            return
        layouts = tuple((tuple(part.shape), tuple(part.stride()), part.dtype) for part in parts)
        kind = None if isinstance(out, torch.Tensor) else type(result)
        self.pass_.outcomes[key] = Outcome(layouts, kind, row)

    def _wrapped(self, out: Any, written: list[ShapeTensor]) -> tuple[Any, int]:
        if isinstance(out, torch.Tensor):
            return self._wrap(out, written, []), out.numel() * out.element_size()
        if not isinstance(out, list | tuple):
            return out, 0
        made: list[Any] = []
        for part in out:
            made.append(self._wrap(part, written, made) if isinstance(part, torch.Tensor) else part)
        added = sum(part.numel() * part.element_size() for part in out if isinstance(part, torch.Tensor))
        return (tuple(made) if isinstance(out, tuple) else made), added

    def _wrap(self, out: torch.Tensor, written: list[ShapeTensor], made: list[Any]) -> ShapeTensor:
        storage = out.untyped_storage()._cdata
        for tensor in written:
            if tensor.raw is out:
                return tensor
        for tensor in (*self.tensors, *made):
            if isinstance(tensor, ShapeTensor) and tensor.raw.untyped_storage()._cdata == storage:
                return alias(out, tensor)
        return fresh(out, self.pass_.memory)

    def _written(self) -> list[ShapeTensor]:
        values = [self.args[i] for i in self.recipe.writes if i < len(self.args)]
        values += [self.kwargs[name] for name in self.recipe.writes_named if name in self.kwargs]
        found: list[ShapeTensor] = []
        _collect(values, found)
        return found


def _collect(values: Any, found: list[ShapeTensor]) -> None:
    for value in values:
        if isinstance(value, ShapeTensor):
            found.append(value)
        elif isinstance(value, list | tuple):
            _collect(value, found)


def _is_known_mask(entry: Any) -> bool:
    mask = isinstance(entry, torch.Tensor) and entry.dtype in (torch.bool, torch.uint8)
    return mask and entry.device.type == "cpu"


def _reduced(func: Any, raw: list[Any]) -> torch.Size:
    shape: torch.Size = func(*[on_meta(value) if isinstance(value, torch.Tensor) else value for value in raw]).shape
    return shape


def _description(value: Any) -> Any:
    kind = type(value)
    if kind is ShapeTensor or isinstance(value, torch.Tensor):
        return tuple(value.shape), tuple(value.stride()), value.dtype
    if kind is list or kind is tuple:
        return tuple(_description(entry) for entry in value)
    return kind, value  # 1, 1.0 and True are one key otherwise
