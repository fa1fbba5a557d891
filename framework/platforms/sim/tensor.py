"""The tensor that lives on a simulated device: a wrapper around the host tensor that holds its data. Imports torch."""

from collections.abc import Callable
from typing import Any, ClassVar

import torch

from framework.platforms.sim.block import Block
from framework.platforms.sim.ledger import round_up
from framework.platforms.sim.streams import Stream
from framework.platforms.sim.world import Device

_make_wrapper = torch.Tensor._make_wrapper_subclass


class SimTensor(torch.Tensor):
    """A tensor of device `sim`. `raw` holds the numbers on the host, `block` its allocation, `lo` and `hi` its bytes.

    There is no autograd: the simulated device is for inference.
    """

    raw: torch.Tensor
    block: Block
    _span: tuple[int, int] | None
    handler: ClassVar[Callable[..., Any]]  # set by `dispatch`, which needs this class

    @staticmethod
    def __new__(cls, raw: torch.Tensor, block: Block | None = None, **options: Any) -> Any:
        if block is None:
            # accelerate wraps a parameter again as type(p)(p, requires_grad=...)
            return torch.nn.Parameter(raw, **options)
        return _wrap(raw, block)

    # Without this every call in Python would pass through here as well as through the dispatcher.
    __torch_function__ = torch._C._disabled_torch_function_impl  # type: ignore[assignment]

    @classmethod
    def __torch_dispatch__(  # type: ignore[override]
        cls, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        return cls.handler(func, args, kwargs or {})

    def span(self) -> tuple[int, int]:
        """The first byte of its block that it uses, and one past the last."""
        if self._span is None:
            self._span = _hull(self.raw)
        return self._span

    @property
    def data(self) -> torch.Tensor:
        return self.detach()

    @data.setter
    def data(self, value: torch.Tensor) -> None:
        assign_data(self, value)

    def data_ptr(self) -> int:
        return self.raw.data_ptr()

    def record_stream(self, stream: Stream) -> None:  # type: ignore[override]
        """Keep the memory from being handed out again before `stream` is done with it."""
        self.block.shared |= {stream.number}

    def __deepcopy__(self, memo: dict[int, Any]) -> torch.Tensor:
        new: torch.Tensor = self.detach().clone()
        if isinstance(self, torch.nn.Parameter):
            new = torch.nn.Parameter(new, self.requires_grad)
        memo[id(self)] = new
        return new

    def tolist(self) -> Any:
        return self.cpu().tolist()  # torch refuses it on a wrapper

    def __repr__(self) -> str:  # type: ignore[override]
        return f"SimTensor(shape={tuple(self.shape)}, dtype={self.dtype}, device={self.device})"

    __str__ = __repr__

    def __format__(self, spec: str) -> str:
        return repr(self)


def _wrap(raw: torch.Tensor, block: Block) -> SimTensor:
    tensor: SimTensor = _make_wrapper(
        SimTensor,
        raw.size(),
        strides=raw.stride(),
        storage_offset=raw.storage_offset(),
        dtype=raw.dtype,
        device=block.device.torch_device,
    )
    tensor.raw = raw
    tensor.block = block
    tensor._span = None
    return tensor


def fresh(raw: torch.Tensor, device: Device, storage: torch.UntypedStorage | None = None) -> SimTensor:
    """Give `raw`, whose storage the caller may have at hand, memory of `device`; raises `SimOOM`."""
    if storage is None:
        storage = raw.untyped_storage()
    nbytes = storage.nbytes()
    device.allocate(round_up(nbytes))
    return _wrap(raw, Block(device, nbytes, storage.data_ptr()))


def alias(raw: torch.Tensor, base: SimTensor) -> SimTensor:
    """Wrap a view of `base`'s data."""
    if torch.is_inference_mode_enabled() and not base.is_inference():
        with torch.inference_mode(False):  # a view of an ordinary tensor is ordinary, as in the built-in backends
            return _wrap(raw, base.block)
    return _wrap(raw, base.block)


def assign_data(tensor: torch.Tensor, value: torch.Tensor) -> None:
    """Do `tensor.data = value` where one of them is of a simulated device: PyTorch refuses it for a wrapper."""
    with torch._C.DisableTorchFunction():
        is_parameter = isinstance(tensor, torch.nn.Parameter)
        if isinstance(value, SimTensor):
            new: torch.Tensor = alias(value.raw, value)
            if is_parameter:
                new._is_param = True
        else:
            new = torch.nn.Parameter(value.detach(), requires_grad=False) if is_parameter else value.detach()
        torch.utils.swap_tensors(tensor, new)  # type: ignore[no-untyped-call]


def poison(raw: torch.Tensor) -> None:
    """Fill with what shows when somebody reads it: NaN, or the largest whole number."""
    if raw.dtype.is_floating_point or raw.dtype.is_complex:
        raw.fill_(float("nan"))
    else:
        raw.fill_(True if raw.dtype == torch.bool else torch.iinfo(raw.dtype).max)


def _hull(raw: torch.Tensor) -> tuple[int, int]:
    size = raw.element_size()
    lo = int(raw.storage_offset()) * size
    if raw.is_contiguous():  # so is every tensor without elements
        return lo, lo + raw.numel() * size
    last = 0
    for length, stride in zip(raw.shape, raw.stride(), strict=True):
        last += int((length - 1) * stride)
    return lo, lo + (last + 1) * size
