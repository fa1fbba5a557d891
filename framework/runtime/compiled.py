"""Compiled blocks of the denoisers for the time of a run. Imports torch.

Only the computation of a block is compiled, once for each of its classes and shapes: residency hooks and step caches
stay outside it and are plain Python, so weights may come and go without a new compilation. Shapes are compiled as they
are, never as symbols: a request gives the same bytes whatever ran before it in the process.
"""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from types import MethodType
from typing import Any

import torch
from torch import nn

from framework.compilers import KEY, OFF
from framework.errors import ConfigError
from framework.memory.layers import find_stacks

INDUCTOR = "inductor"
MAX_SHAPES = 256  # of one block's inputs; beyond them torch would compute uncompiled without a word


@contextmanager
def compiled_blocks(
    mode: str,
    denoisers: Mapping[str, nn.Module],
    layers: Mapping[str, tuple[str, ...]],
    backend: str | Callable[..., Any] = INDUCTOR,
) -> Iterator[None]:
    """Compile the repeated blocks of `denoisers` with a backend of torch; they are as before after the block.

    `layers` are the block lists that the pipeline names, for classes whose blocks diffusers does not name. Raises
    `ConfigError` where a denoiser has no blocks that anybody knows.
    """
    if mode == OFF:
        yield
        return
    if not denoisers:
        raise ConfigError.of(KEY, "the pipeline has no denoiser whose blocks could be compiled", hint="set it to off")
    blocks = [block for name, module in denoisers.items() for block in find_blocks(name, module, layers.get(name, ()))]
    before = [(block, vars(block).get("forward")) for block in blocks]
    compiled: dict[Any, Any] = {}
    try:
        for block in blocks:
            _compile(block, backend, compiled)
        with torch._dynamo.config.patch(recompile_limit=MAX_SHAPES, accumulated_recompile_limit=8 * MAX_SHAPES):
            yield
    finally:
        for block, forward in before:
            vars(block).pop("forward", None)
            if forward is not None:
                vars(block)["forward"] = forward


def find_blocks(component: str, module: nn.Module, layers: tuple[str, ...] = ()) -> list[nn.Module]:
    """Return the blocks that diffusers names for the class of `module`, else the layers that would be streamed.

    Raises `ConfigError` where neither is known.
    """
    named = getattr(type(module), "_repeated_blocks", None) or ()
    blocks = [part for part in module.modules() if type(part).__name__ in named]
    if blocks:
        return blocks
    try:
        stacks = find_stacks(component, module, layers)
    except ConfigError:
        reason = f"nobody names the repeated blocks of '{component}' ({type(module).__name__})"
        raise ConfigError.of(KEY, reason, hint=f"set pipeline.components.{component}.layers") from None
    return [layer.module for stack in stacks for layer in stack.layers]


def _compile(block: nn.Module, backend: str | Callable[..., Any], compiled: dict[Any, Any]) -> None:
    """Blocks of one class share what was compiled; one whose forward is wrapped already has it compiled as it is."""
    own = vars(block).get("forward")
    if own is not None:
        vars(block)["forward"] = torch.compile(own, backend=backend, dynamic=False)
        return
    cls = type(block)
    if cls not in compiled:
        compiled[cls] = torch.compile(cls.forward, backend=backend, dynamic=False)
    vars(block)["forward"] = MethodType(compiled[cls], block)
