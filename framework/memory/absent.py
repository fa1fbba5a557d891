"""The stand-in for a weight that is not on the device: says what it is, and refuses to be used. Imports torch.

Stand-ins of torch's own (meta, one-element and zero-element tensors) are silent in some operations.
"""

from collections.abc import Mapping
from typing import Any, NoReturn

import torch
from torch import Tensor, nn

from framework.errors import FrameworkError

_NAMES = """
shape dtype device layout ndim requires_grad grad grad_fn is_leaf is_sparse is_quantized is_meta is_cuda is_cpu is_mps
is_xpu is_nested is_complex is_floating_point is_inference is_contiguous is_signed size stride dim nelement numel
element_size nbytes itemsize names retains_grad _backward_hooks __len__ __hash__
"""
_METADATA = frozenset(_NAMES.split())
"""What may be asked of a tensor without touching its data."""


class AbsentWeight(FrameworkError):
    """A weight was used while it is not on the device; says which one."""

    def __init__(self, component: str, layer: str, tensor: str, operation: str = "") -> None:
        self.component, self.layer, self.tensor, self.operation = component, layer, tensor, operation
        used = f" by {operation}" if operation else ""
        super().__init__(
            f"component '{component}': weight '{tensor}' of '{layer}' was used{used} while it is not on the device; "
            f"weights come with a use of the component, a layer's with its own call "
            f"(component_residency.{component}=resident keeps them there)"
        )


class Placeholder(Tensor):
    """True shape, strides, dtype and execution device of an absent weight; every operation raises `AbsentWeight`."""

    component: str
    layer: str
    tensor: str

    @staticmethod
    def __new__(cls, like: Tensor, device: torch.device, component: str, layer: str, tensor: str) -> "Placeholder":
        self: Placeholder = Tensor._make_wrapper_subclass(
            cls, like.size(), strides=like.stride(), dtype=like.dtype, device=device, requires_grad=False
        )
        self.component, self.layer, self.tensor = component, layer, tensor
        return self

    def __init__(self, like: Tensor, device: torch.device, component: str, layer: str, tensor: str) -> None:
        """All is done in `__new__`, as tensors want it."""

    @classmethod
    def __torch_function__(
        cls, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        if _asks_metadata(func):
            with torch._C.DisableTorchFunctionSubclass():
                return func(*args, **(kwargs or {}))
        _refuse(func, args, kwargs or {})

    @classmethod
    def __torch_dispatch__(  # type: ignore[override]
        cls, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        _refuse(func, args, kwargs or {})

    def __repr__(self, *, tensor_contents: Any = None) -> str:  # type: ignore[override]
        return f"<absent {self.tensor} of {self.component} {tuple(self.shape)} {self.dtype}>"

    def __deepcopy__(self, memo: Any) -> NoReturn:
        raise AbsentWeight(self.component, self.layer, self.tensor, "copy.deepcopy")

    def __reduce_ex__(self, protocol: Any) -> NoReturn:
        raise AbsentWeight(self.component, self.layer, self.tensor, "pickle")


def make_placeholder(
    like: Tensor, device: torch.device, component: str, layer: str, tensor: str, attributes: Mapping[str, Any]
) -> Placeholder:
    """Return a placeholder of `like`; `attributes` (a quantisation type, say) stay readable on it."""
    absent = Placeholder(like, device, component, layer, tensor)
    for name, value in attributes.items():
        setattr(absent, name, value)
    if isinstance(like, nn.Parameter):
        absent._is_param = True  # what `isinstance(x, nn.Parameter)` looks at in a tensor subclass
    return absent


def _asks_metadata(func: Any) -> bool:
    """Whether `func` is a method or property getter that tells what a tensor is without touching its data."""
    name = getattr(func, "__name__", "")
    if name == "__get__":
        name = getattr(getattr(func, "__self__", None), "__name__", "")
    return name in _METADATA


def _refuse(func: Any, args: Any, kwargs: Mapping[str, Any]) -> NoReturn:
    found = _first([*args, *kwargs.values()])
    name = getattr(func, "__name__", str(func))
    if name in ("__get__", "__set__"):
        name = getattr(getattr(func, "__self__", None), "__name__", name)
    if found is None:
        raise AbsentWeight("?", "?", "?", name)
    raise AbsentWeight(found.component, found.layer, found.tensor, name)


def _first(values: Any) -> Placeholder | None:
    for value in values:
        if isinstance(value, Placeholder):
            return value
        if isinstance(value, list | tuple) and (found := _first(value)) is not None:
            return found
    return None
