"""diffusers' step caches on the denoisers, fresh for every request. Imports torch; diffusers inside functions.

Whole blocks that a cache leaves out must not be fetched either: its hook is put outside the block's call, and with it
outside the hooks that bring the block's weights. What the streamer expected and is not called costs nothing but room.
"""

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import torch
from torch import nn

from framework.errors import ConfigError, StageError
from framework.memory.hooks import uncompiled
from framework.runtime.store import ComponentStore
from framework.spec import RequestSpec
from framework.step_caches import KEY, StepCache

STEPS = "num_inference_steps"
DTYPE = "taylor_factors_dtype"


class StepCaches:
    """Puts a cache on those of the named components of `store` that can have one; None: on none."""

    def __init__(self, chosen: StepCache | None, store: ComponentStore, denoisers: tuple[str, ...]) -> None:
        self._chosen = chosen
        self._store = store
        self._denoisers = denoisers

    @contextmanager
    def serving(self, request: RequestSpec) -> Iterator[None]:
        """Cache between the steps of one request; nothing of it is left after the block.

        Raises `ConfigError` where the cache finds nothing to hold on to in a denoiser.
        """
        if self._chosen is None:
            yield
            return
        with ExitStack() as stack:
            for name in self._denoisers:
                module = self._store.module(name)
                if can_cache(type(module)):
                    stack.enter_context(self._cached(name, module, request))
            yield

    @contextmanager
    def _cached(self, name: str, module: Any, request: RequestSpec) -> Iterator[None]:
        assert self._chosen is not None
        cache = self._chosen.cache
        before = _hooks(module)
        _enable(name, module, self._chosen, make_config(self._chosen, request, self._timestep))
        added = {part: found for part, found in _hooks(module).items() if found != before.get(part, ())}
        skipped: list[Callable[[], None]] = []
        try:
            if not any(part is not module for part in added):
                reason = f"{cache.name} finds nothing to cache in '{name}' ({type(module).__name__})"
                raise ConfigError.of(KEY, reason, hint="name its modules in options, or use another cache")
            if cache.skips_blocks:
                skipped += [_put_outside(part) for part in added if part is not module]
            with _once_a_step(name, module, self._timestep, self._chosen):
                yield
        finally:
            for undo in skipped:
                undo()
            module.disable_cache()

    def _timestep(self) -> Any:
        """The timestep of the pipeline that is running."""
        found = (getattr(view, "current_timestep", None) for view in self._store.views())
        return next((timestep for timestep in found if timestep is not None), 0)


def can_cache(cls: type) -> bool:
    """Whether diffusers can put a step cache on models of this class."""
    from diffusers.models.cache_utils import CacheMixin

    return issubclass(cls, CacheMixin)


def make_config(chosen: StepCache, request: RequestSpec, timestep: Callable[[], Any]) -> Any:
    """Return diffusers' own config of the cache for one request. Raises `ConfigError` for values that it refuses."""
    import diffusers

    cache = chosen.cache
    options: dict[str, Any] = {**cache.defaults, **dict(chosen.options)}
    if cache.timestep:
        options["current_timestep_callback"] = timestep
    if STEPS in cache.options and STEPS not in options and request.num_inference_steps is not None:
        options[STEPS] = request.num_inference_steps
    if isinstance(options.get(DTYPE), str):
        options[DTYPE] = _dtype(options[DTYPE])
    try:
        return getattr(diffusers, cache.config)(**options)
    except (TypeError, ValueError) as error:
        raise ConfigError.of(KEY, f"{cache.name}: {_line(error)}") from error


def _dtype(name: str) -> torch.dtype:
    found = getattr(torch, name, None)
    if not isinstance(found, torch.dtype):
        raise ConfigError.of(f"{KEY}.options.{DTYPE}", f"unknown dtype '{name}'", hint="write float32 or bfloat16")
    return found


def _enable(name: str, module: Any, chosen: StepCache, config: Any) -> None:
    try:
        module.enable_cache(config)
    except (ValueError, IndexError, KeyError) as error:
        reason = f"{chosen.method} cannot be put on '{name}' ({type(module).__name__}): {_line(error)}"
        raise ConfigError.of(KEY, reason, hint="use another cache") from error


def _hooks(module: nn.Module) -> dict[nn.Module, tuple[str, ...]]:
    """The names of diffusers' hooks on each part of a model, in the order they were put on."""
    parts = ((part, getattr(part, "_diffusers_hook", None)) for part in module.modules())
    return {part: tuple(registry._hook_order) for part, registry in parts if registry is not None}


def _put_outside(block: Any) -> Callable[[], None]:
    """Let the newest hook of diffusers decide about a call of `block` before any hook of the block sees it.

    torch calls `_compiled_call_impl` of a module in place of `_call_impl`, which runs hooks and forward.
    """
    reference = block._diffusers_hook._fn_refs[-1]
    plain, deciding = reference.original_forward, block.forward
    before = block._compiled_call_impl
    reference.original_forward = before or block._call_impl
    vars(block)["forward"] = plain
    block._compiled_call_impl = deciding

    def undo() -> None:
        block._compiled_call_impl = before
        vars(block)["forward"] = deciding
        reference.original_forward = plain

    return undo


@contextmanager
def _once_a_step(name: str, module: nn.Module, timestep: Callable[[], Any], chosen: StepCache) -> Iterator[None]:
    """Stop where a cache that keeps one state would take one pass of a step for another (guidance in two passes)."""
    if not chosen.cache.one_pass:
        yield
        return
    last: list[Any] = [None]

    def look(*_: Any) -> None:
        now = timestep()
        if now is last[0]:
            raise StageError(
                f"{KEY}: {chosen.method} keeps one state, and this pipeline calls '{name}' more than once a step; "
                "use first_block or taylorseer, or a guidance_scale that switches guidance off"
            )
        last[0] = now

    handle = module.register_forward_pre_hook(uncompiled(look))
    try:
        yield
    finally:
        handle.remove()


def _line(error: BaseException) -> str:
    text = str(error).strip().splitlines()
    return text[0].strip() if text else type(error).__name__
