"""Registers the device `sim` with PyTorch: once per process, with no effect on other devices. Imports torch."""

from collections.abc import Callable
from typing import Any

import torch

from framework.errors import ConfigError
from framework.platforms.sim import dispatch as _dispatch  # also gives SimTensor its handler
from framework.platforms.sim.block import Write
from framework.platforms.sim.module import SimModule
from framework.platforms.sim.recipes import FUSED
from framework.platforms.sim.tensor import SimTensor, fresh, poison
from framework.platforms.sim.transfers import copy
from framework.platforms.sim.world import device_of

FIRST_TORCH = (2, 13)

# Factories whose general form resizes its result, which a wrapper tensor cannot.
FACTORIES: dict[str, Callable[..., torch.Tensor]] = {
    "arange": torch.arange,
    "arange.start": torch.arange,
    "arange.start_step": torch.arange,
    "linspace": torch.linspace,
    "logspace": torch.logspace,
    "eye": torch.eye,
    "eye.m": torch.eye,
    "tril_indices": torch.tril_indices,
    "triu_indices": torch.triu_indices,
}

_installed: list[Any] = []  # the registration lives as long as this object, so as long as the process


def install() -> None:
    """Make `torch.device("sim")` work: cheap to call again, and never undone.

    Raises `ConfigError` before torch 2.13.
    """
    if _installed:
        return
    version = tuple(int(part) for part in torch.__version__.split("+")[0].split(".")[:2])
    if version < FIRST_TORCH:
        raise ConfigError.of(
            "device", f"sim needs torch 2.13 or later, this is {torch.__version__}", hint="write device=cpu"
        )
    from torch.utils.backend_registration import _setup_privateuseone_for_python_backend

    _setup_privateuseone_for_python_backend("sim", backend_module=SimModule())
    library: Any = torch.library.Library("aten", "IMPL")  # type: ignore[no-untyped-call]
    library.impl("empty.memory_format", _empty, "PrivateUse1")
    library.impl("empty_strided", _empty_strided, "PrivateUse1")
    library.impl("_copy_from", _copy_from, "PrivateUse1")
    library.impl("_local_scalar_dense", _dispatch.item, "PrivateUse1")  # torch.tensor([scalar]) passes no dispatcher
    for name, make in FACTORIES.items():
        library.impl(name, _factory(name, make), "PrivateUse1")
    for name in FUSED:
        library.impl(name, _unreachable, "PrivateUse1")
    _installed.append(library)


def _empty(
    size: Any,
    *,
    dtype: torch.dtype | None = None,
    layout: Any = None,
    device: Any = None,
    pin_memory: Any = None,
    memory_format: torch.memory_format | None = None,
) -> torch.Tensor:
    raw = torch.empty(size, dtype=dtype, memory_format=memory_format or torch.contiguous_format, device="cpu")
    tensor = fresh(raw, device_of(device))  # first: what the device refuses should not take the host's memory
    poison(raw)
    return tensor


def _empty_strided(
    size: Any,
    stride: Any,
    *,
    dtype: torch.dtype | None = None,
    layout: Any = None,
    device: Any = None,
    pin_memory: Any = None,
) -> torch.Tensor:
    raw = torch.empty_strided(size, stride, dtype=dtype, device="cpu")
    tensor = fresh(raw, device_of(device))  # first: what the device refuses should not take the host's memory
    poison(raw)
    return tensor


def _copy_from(src: torch.Tensor, dst: torch.Tensor, non_blocking: bool = False) -> torch.Tensor:
    """Reached instead of the dispatcher where PyTorch builds a tensor from Python values."""
    copy(dst, src, non_blocking=non_blocking)
    return dst


def _factory(name: str, make: Callable[..., torch.Tensor]) -> Callable[..., torch.Tensor]:
    def build(*args: Any, dtype: torch.dtype | None = None, device: Any = None, **unused: Any) -> torch.Tensor:
        where = device_of(device)
        stream = where.current
        where.world.launch(stream)
        made: SimTensor = fresh(make(*args, dtype=dtype, device="cpu"), where)
        made.block.writes = [Write(0, made.block.nbytes, stream.number, stream.sequence, name)]
        where.world.run_kernel(stream, made.block.nbytes / (where.world.profile.memory_gbps * 1e9))
        return made

    return build


def _unreachable(*args: Any, **kwargs: Any) -> Any:
    raise AssertionError("a simulated tensor reached a kernel without passing the dispatcher")
