"""Runs every operator on shapes alone and writes down what it costs. Imports torch.

What an operator is (view, kernel, composite) and how its arithmetic is counted are those of the simulated device, so
that its ledger and its clock can check the prediction. For other devices fused operators are taken apart as their own
library does it, attention excepted.
"""

from typing import Any

import torch
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

from framework.planning.profile_attention import attend
from framework.planning.profile_operator import ALL, ALL_OR_ANY, Operator, Outcome
from framework.planning.profile_tape import WAIT, Tape
from framework.planning.profile_tensor import KEPT_ELEMENTS, Memory, ShapeTensor, alias, dtype_name, fresh, on_meta
from framework.platforms.sim.recipes import Recipe, learn

aten = torch.ops.aten

HOST_ELEMENTS = 1 << 22
"""Unknown numbers up to this many arrive on the host as zeros; more stay without memory there too."""

TAKEN_APART = frozenset({"matmul", "linear", "layer_norm", "group_norm"})


class ShapePass(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """While it is on, tensors asked for on the device `sim` have shapes only. `target` is the kind of device whose
    kernels are meant."""

    def __init__(self, target: str) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.memory = Memory()
        self.tape = Tape()
        self.target = target
        self.outcomes: dict[Any, Outcome] = {}
        self._recipes: dict[Any, Recipe] = {}

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False  # nothing is compiled here, and the wrapper would cost more than the rest

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        with torch._C.DisableTorchFunction():
            return self._pass(func, types, args, kwargs or {})

    def _pass(self, func: Any, types: Any, args: Any, kwargs: dict[str, Any]) -> Any:
        if ShapeTensor in types:
            return self.run(func, args, kwargs)
        if any(_is_here(value) for value in (*kwargs.values(), *args)):
            return self._make(func, args, kwargs)
        if not _asks_meta(func, args):
            return func(*args, **kwargs)
        return self._known(func, args[0])

    def run(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Run one operator on at least one tensor without numbers."""
        special = _SPECIAL.get(func)
        if special is not None:
            return special(self, *args, **kwargs)
        recipe = self._recipe(func)
        if recipe.composite or (self.target != "sim" and recipe.name in TAKEN_APART):
            with self:
                return func.decompose(*args, **kwargs)
        if recipe.name == "scaled_dot_product_attention":
            return attend(self, recipe, *args, **kwargs)
        return Operator(self, func, recipe, args, kwargs).run()

    def _recipe(self, func: Any) -> Recipe:
        recipe = self._recipes.get(func)
        if recipe is None:
            recipe = self._recipes[func] = learn(func)
        return recipe

    # --- what makes tensors of the device

    def _make(self, func: Any, args: Any, kwargs: dict[str, Any]) -> Any:
        """A factory, or a copy of a host tensor to the device."""
        if func is aten._to_copy.default:
            return self.to_device(args[0], kwargs.get("dtype"))
        if self._recipe(func).composite:
            with self:
                return func.decompose(*args, **kwargs)
        options = {name: value for name, value in kwargs.items() if name not in ("device", "pin_memory", "generator")}
        out = func(*args, **options, device="meta")
        if out.numel() <= KEPT_ELEMENTS:
            out = func(*args, **options, device="cpu")
        made = fresh(out, self.memory)
        if "empty" not in func._schema.name:
            self.tape.add("", 0.0, made.block.nbytes, dtype_name(out.dtype))
        return made

    def to_device(self, host: torch.Tensor, dtype: torch.dtype | None = None) -> ShapeTensor:
        """Copy a host tensor to the device; numbers nobody knows have none there either."""
        raw = host if host.device.type == "meta" or host.numel() > KEPT_ELEMENTS else host.detach()
        wanted = dtype or host.dtype
        if raw.device.type == "cpu" and raw.numel() <= KEPT_ELEMENTS:
            out = torch.empty_like(raw, dtype=wanted).copy_(raw)
        else:
            out = torch.empty_like(raw, dtype=wanted, device="meta")
        made = fresh(out, self.memory)
        self.tape.add("h2d", 0.0, out.numel() * out.element_size(), dtype_name(wanted))
        self.tape.add(WAIT)
        return made

    # --- what asks for numbers

    def _known(self, func: Any, tensor: torch.Tensor) -> Any:
        """Answer for a host tensor whose numbers nobody knows."""
        if func in ALL_OR_ANY:
            return torch.full((), func in ALL, dtype=torch.bool)
        return self.guess(tensor, func)

    def guess(self, tensor: torch.Tensor, func: Any) -> Any:
        """Return the scalar that stands for a number nobody knows."""
        self.tape.guessed.add(str(func))
        return (tensor.dtype.is_floating_point and 0.0) or (False if tensor.dtype == torch.bool else 0)

    def scalar(self, tensor: ShapeTensor) -> Any:
        self.tape.values_read = True
        self.tape.add("")
        self.tape.add(WAIT)
        raw = tensor.numbers()
        return self.guess(tensor, aten._local_scalar_dense.default) if raw.device.type == "meta" else raw.item()

    def to_host(self, src: ShapeTensor, dtype: torch.dtype, keep: torch.memory_format) -> torch.Tensor:
        self.tape.add("d2h", 0.0, src.numel() * src.element_size(), dtype_name(src.dtype))
        self.tape.add(WAIT)
        raw = src.numbers()
        if raw.device.type != "meta":
            self.tape.values_read = True
            return torch.empty_like(raw, dtype=dtype, memory_format=keep).copy_(raw)
        if raw.numel() > HOST_ELEMENTS:
            return torch.empty_like(raw, dtype=dtype, memory_format=keep)
        return torch.empty_like(raw, dtype=dtype, memory_format=keep, device="cpu").zero_()


class FromNumbers(TorchFunctionMode):
    """Beside a `ShapePass`: tensors built from Python values come to the device by way of the host.

    PyTorch builds them below the dispatcher, where no pass sees them.
    """

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if func in _FROM_NUMBERS and _is_here_or_named(kwargs.get("device")):
            return func(*args, **{**kwargs, "device": "cpu"}).to("sim:0")
        if func is torch.Tensor.new_tensor and isinstance(args[0], ShapeTensor) and kwargs.get("device") is None:
            return torch.tensor(args[1], dtype=kwargs.get("dtype") or args[0].dtype).to("sim:0")
        return func(*args, **kwargs)


def _is_here(value: Any) -> bool:
    return isinstance(value, torch.device) and value.type == "sim"


def _is_here_or_named(value: Any) -> bool:
    return value is not None and torch.device(value).type == "sim"


def _asks_meta(func: Any, args: tuple[Any, ...]) -> bool:
    """Whether an operator wants to know the numbers of a host tensor that has none."""
    asks = func in ALL_OR_ANY or func is aten._local_scalar_dense.default
    return asks and isinstance(args[0], torch.Tensor) and args[0].device.type == "meta"


# --- operators with a meaning of their own


def _copy_(pass_: ShapePass, dst: torch.Tensor, src: torch.Tensor, non_blocking: bool = False) -> torch.Tensor:
    if not isinstance(dst, ShapeTensor):
        assert isinstance(src, ShapeTensor), "one side of the copy is on the device"
        host = pass_.to_host(src, dst.dtype, torch.preserve_format)
        return dst.copy_(host) if dst.device.type != "meta" and host.device.type != "meta" else dst
    known = dst.is_known and (not isinstance(src, ShapeTensor) or src.is_known) and dst.numel() <= KEPT_ELEMENTS
    if isinstance(src, ShapeTensor):
        if src.block.owner is not None:
            pass_.tape.read(src.block.owner)
        size_bytes = dst.numel() * (dst.element_size() + src.element_size())
        pass_.tape.add("", 0.0, size_bytes, dtype_name(dst.dtype))
    else:
        known = known and src.device.type != "meta"
        pass_.tape.add("h2d", 0.0, dst.numel() * dst.element_size(), dtype_name(dst.dtype))
        pass_.tape.add(WAIT)
    if known:
        dst.raw.copy_(src.numbers() if isinstance(src, ShapeTensor) else src)
    else:
        dst.block.unknown = True
    return dst


def _to_copy(
    pass_: ShapePass,
    src: ShapeTensor,
    *,
    dtype: torch.dtype | None = None,
    layout: Any = None,
    device: Any = None,
    pin_memory: bool | None = None,
    non_blocking: bool = False,
    memory_format: torch.memory_format | None = None,
) -> torch.Tensor:
    dtype = dtype or src.dtype
    keep = memory_format or torch.preserve_format
    if device is not None and torch.device(device).type != "sim":
        if torch.device(device).type == "meta":
            return on_meta(src.raw).to(dtype)
        return pass_.to_host(src, dtype, keep)
    if src.block.owner is not None:
        pass_.tape.read(src.block.owner)
    raw = src.numbers()
    made = fresh(raw.to(dtype, copy=True, memory_format=keep), pass_.memory)
    size_bytes = src.numel() * (src.element_size() + made.element_size())
    pass_.tape.add("", 0.0, size_bytes, dtype_name(dtype))
    return made


def _item(pass_: ShapePass, src: ShapeTensor) -> Any:
    return pass_.scalar(src)


def _never_compatible(pass_: ShapePass, tensor: torch.Tensor, other: torch.Tensor) -> bool:
    """`Module.to` asks whether `.data =` would do; it puts in a new parameter instead."""
    return False


_FROM_NUMBERS = frozenset({torch.tensor, torch.as_tensor, torch.asarray})
_SPECIAL: dict[Any, Any] = {
    aten.copy_.default: _copy_,
    aten._to_copy.default: _to_copy,
    aten._local_scalar_dense.default: _item,
    aten._has_compatible_shallow_copy_type.default: _never_compatible,
}


def _outside(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Operators are passed through while a `ShapePass` is on; `detach` and the like also work when none is."""
    recipe = learn(func)
    if not recipe.view:
        raise AssertionError(f"{recipe.name}: a tensor without numbers outlived its pass")
    base = args[0]
    out = func(base.raw, *args[1:], **kwargs)
    parts = [alias(part, base) for part in (out if isinstance(out, list | tuple) else [out])]
    return parts if isinstance(out, list | tuple) else parts[0]


ShapeTensor.handler = staticmethod(_outside)
