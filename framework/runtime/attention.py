"""The attention backend of diffusers' denoisers for the time of a run. Imports torch; diffusers inside functions."""

import logging
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch
from torch import nn

from framework.attention_backends import DEFAULT, KEY, Backend, find_backend
from framework.errors import ConfigError
from framework.memory.casting import main_dtype

HALF = (torch.float16, torch.bfloat16)


@contextmanager
def attention_backend(name: str, denoisers: Mapping[str, nn.Module], tell: Callable[[str], None]) -> Iterator[None]:
    """Let `denoisers` compute attention with the backend `name`; everything is put back after the block.

    All other models keep torch's own choice, whatever diffusers' environment says. Raises `ConfigError` where no
    denoiser can take it, or one has a dtype that it cannot; one line names those that compute as they always do.
    """
    from diffusers.models.attention_dispatch import AttentionBackendName, _AttentionBackendRegistry

    backend = find_backend(name)
    assert backend is not None, name
    native = AttentionBackendName(DEFAULT)
    before, _ = _AttentionBackendRegistry.get_active_backend()
    if before != native:
        tell(f"DIFFUSERS_ATTN_BACKEND={before.value} of the environment is not used: {KEY} is {name}")
    changed: list[Any] = []
    try:
        _AttentionBackendRegistry.set_active_backend(native)
        if backend.name != DEFAULT:
            for module in _able(backend, denoisers, tell):
                changed.append(module)
                with _quiet():
                    module.set_attention_backend(backend.name)
            _AttentionBackendRegistry.set_active_backend(native)  # diffusers makes it everybody's
        yield
    finally:
        for module in changed:
            with _quiet():
                module.reset_attention_backend()
        _AttentionBackendRegistry.set_active_backend(before)


def _able(backend: Backend, denoisers: Mapping[str, nn.Module], tell: Callable[[str], None]) -> list[Any]:
    """The denoisers whose attention asks diffusers for a backend."""
    able = {name: module for name, module in denoisers.items() if _asks(module)}
    without = [f"'{name}' ({type(module).__name__})" for name, module in denoisers.items() if name not in able]
    if not able:
        reason = f"{backend.name} cannot be given to {' and '.join(without) or 'a pipeline without a denoiser'}"
        raise ConfigError.of(KEY, f"{reason}: its attention does not ask for a backend", hint="use sdpa")
    if without:
        tell(f"{KEY}: no effect on {', '.join(without)}, whose attention asks for no backend")
    for name, module in able.items():
        dtype = main_dtype(module)
        if backend.half and dtype not in HALF:
            reason = f"{backend.name} takes float16 and bfloat16, and '{name}' is {str(dtype).removeprefix('torch.')}"
            raise ConfigError.of(KEY, reason, hint=f"set pipeline.components.{name}.dtype")
    return list(able.values())


def _asks(module: nn.Module) -> bool:
    """Whether some attention of a diffusers model looks for a backend, which older processors do not."""
    if not hasattr(module, "set_attention_backend"):
        return False
    return any(hasattr(getattr(part, "processor", None), "_attention_backend") for part in module.modules())


@contextmanager
def _quiet() -> Iterator[None]:
    """Leave out that diffusers calls the interface experimental: what is in force is in our own lines."""
    logger = logging.getLogger("diffusers.models.modeling_utils")
    before = logger.level
    logger.setLevel(logging.ERROR)
    try:
        yield
    finally:
        logger.setLevel(before)
