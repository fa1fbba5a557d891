"""Lets code written for CUDA run on `sim` unchanged where a wrapper tensor needs help. Imports torch."""

from typing import Any

import torch
from torch.overrides import TorchFunctionMode

from framework.platforms.sim.tensor import SimTensor, assign_data
from framework.platforms.sim.world import current

_SET_DATA = torch.Tensor.data.__set__  # type: ignore[attr-defined]


class SimCompat(TorchFunctionMode):
    """Inside this mode `param.data = tensor` works between host and device, `Module.to` keeps tied parameters tied, and
    `pin_memory` and `is_pinned` mean the simulated pool.

    Our own engine needs none of it; diffusers' group offload does.
    """

    def __enter__(self) -> "SimCompat":
        self._swapping = torch.__future__.get_swap_module_params_on_conversion()
        torch.__future__.set_swap_module_params_on_conversion(True)
        super().__enter__()  # type: ignore[no-untyped-call]
        return self

    def __exit__(self, *error: Any) -> None:
        super().__exit__(*error)  # type: ignore[no-untyped-call]
        torch.__future__.set_swap_module_params_on_conversion(self._swapping)

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        if func == _SET_DATA and isinstance(args[1], SimTensor):
            assign_data(*args)
            return None
        if func is torch.Tensor.pin_memory:
            return pin(args[0])
        if func is torch.Tensor.is_pinned:
            return current().pinned.find(args[0]) is not None
        return func(*args, **(kwargs or {}))


def pin(host: torch.Tensor) -> torch.Tensor:
    """Return a contiguous copy of `host` in pinned memory; raises `RuntimeError` beyond the pool's cap."""
    size_bytes = host.numel() * host.element_size()
    memory = current().pinned.allocate(size_bytes, kept=True)
    if memory is None:
        raise RuntimeError(f"the simulated pinned pool has no room for {size_bytes} bytes")
    if size_bytes == 0:
        return host.detach().clone()
    return memory.view(host.dtype).view(host.shape).copy_(host.detach())
