"""Applying what may change the picture, before the first request, and what it needs. Imports torch in functions."""

import inspect
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Any

from framework.attention_backends import attention_problems
from framework.compilers import compile_problems
from framework.errors import ConfigError, Problem
from framework.graph import Graph
from framework.loading.classes import component_class, library_class, pipeline_class
from framework.loading.index import ModelIndex, read_index
from framework.loading.source import locate_model
from framework.quantization import capability_problems
from framework.registry import FAMILIES
from framework.runtime.events import EventBus, Note
from framework.runtime.store import ComponentStore
from framework.spec import NumericsSpec, PipelineSpec, Placement, RunSpec
from framework.step_caches import KEY as CACHE_KEY
from framework.step_caches import Cache

if TYPE_CHECKING:
    from torch import nn

DENOISER, VAE = "dit", "vae"


@contextmanager
def applied_numerics(numerics: NumericsSpec, store: ComponentStore) -> Iterator[None]:
    """Apply what changes shapes: all that a forecast of a run, made on shapes alone, can follow."""
    from framework.runtime.vae_switches import vae_switches

    vaes = {name: module for name, module in store.modules().items() if hasattr(module, "enable_tiling")}
    with vae_switches(numerics, vaes, lambda line: None):
        yield


@contextmanager
def run_numerics(spec: RunSpec, store: ComponentStore, events: EventBus) -> Iterator[None]:
    """Apply everything of `spec.numerics` that lasts for a run; put all back after the block.

    Step caches are fresh for each request and put on there; quantised weights are made while loading. Raises
    `ConfigError` for what the loaded components cannot do.
    """
    from framework.runtime.attention import attention_backend
    from framework.runtime.compiled import compiled_blocks
    from framework.runtime.determinism import deterministic_kernels
    from framework.runtime.vae_switches import vae_switches

    numerics, denoisers = spec.numerics, in_group(spec, store, DENOISER)
    layers = {name: component.layers for name, component in spec.pipeline.components.items()}

    def tell(line: str) -> None:
        events.emit(Note(line))

    _tell_uncached(spec, denoisers, tell)
    with ExitStack() as stack:
        stack.enter_context(vae_switches(numerics, in_group(spec, store, VAE), tell))
        stack.enter_context(attention_backend(numerics.attention, denoisers, tell))
        stack.enter_context(compiled_blocks(numerics.compile, denoisers, layers))
        stack.enter_context(deterministic_kernels(numerics.deterministic))
        yield


def denoisers_of(spec: RunSpec, store: ComponentStore) -> tuple[str, ...]:
    """The names of the loaded components that denoise."""
    return tuple(in_group(spec, store, DENOISER))


def in_group(spec: RunSpec, store: ComponentStore, group: str) -> "dict[str, nn.Module]":
    """Return the loaded modules of a group by their names."""
    return {name: module for name, module in store.modules().items() if group_of(spec, name) == group}


def group_of(spec: RunSpec, name: str) -> str | None:
    """The group of a component, as the plan has it or as the pipeline says."""
    placement, component = spec.placements.get(name), spec.pipeline.components.get(name)
    return (placement and placement.group) or (component and component.group) or None


def refuse_incapable(spec: RunSpec, graph: Graph, placements: Mapping[str, Placement], kind: str) -> None:
    """Raise `ConfigError` for all that a run on a platform of `kind` cannot have, before any weight is read.

    Looks at packages, compilers, devices and modes, and at the classes that the checkpoint names.
    """
    numerics, pipeline = spec.numerics, spec.pipeline
    modes = {name: placement.mode for name, placement in placements.items()}
    problems = list(capability_problems(numerics.quantize, modes, kind))
    problems += attention_problems(numerics.attention, kind, trusted=pipeline.model.trust_remote_code)
    problems += compile_problems(numerics.compile, kind)
    if numerics.step_cache is not None:
        index = read_index(locate_model(pipeline.model, pipeline.hints))
        used = [name for name in sorted(graph.used_components()) if group_of(spec, name) == DENOISER]
        problems += _cache_problems(numerics.step_cache.cache, index, spec, used)
    if problems:
        raise ConfigError(problems)


def _cache_problems(cache: Cache, index: ModelIndex, spec: RunSpec, denoisers: list[str]) -> list[Problem]:
    """What keeps a step cache from a pipeline and its requests, as far as classes tell."""
    from framework.runtime.step_cache import can_cache

    pipeline, trusted = spec.pipeline, spec.pipeline.model.trust_remote_code
    wanted = {name: index.components.get(name) for name in denoisers}
    classes = {name: component_class(index, name, found, trusted) for name, found in wanted.items() if found}
    if not any(can_cache(cls) for cls in classes.values()):
        names = " and ".join(f"'{name}' ({cls.__name__})" for name, cls in classes.items()) or "no denoiser"
        return [Problem(CACHE_KEY, f"diffusers has no step cache for {names}", hint="set it to off")]
    view = _view_class(index, pipeline)
    problems = []
    if cache.contexts and "cache_context(" not in _source(view):
        reason = f"{cache.name} needs a pipeline that names its passes, which {view.__name__} does not"
        problems.append(Problem(CACHE_KEY, reason, hint="use pyramid_attention, or set it to off"))
    if cache.timestep and not hasattr(view, "current_timestep"):
        reason = f"{cache.name} needs a pipeline that tells its timestep, which {view.__name__} does not"
        problems.append(Problem(CACHE_KEY, reason, hint="use first_block, or set it to off"))
    if cache.one_pass and _passes(view) > 1 and (scale := _guiding_scale(spec)):
        reason = f"{cache.name} keeps one state, and guidance calls the denoiser of {view.__name__} twice a step"
        problems.append(Problem(CACHE_KEY, reason, hint=f"use first_block, or {scale}"))
    return problems


def _passes(view: Any) -> int:
    """How often a step may call the denoiser, as far as the source of the call tells."""
    source = _source(view)
    return max(source.count("cache_context("), source.count("self.transformer("))


def _guiding_scale(spec: RunSpec) -> str:
    """What would switch guidance off where a request is guided, else nothing. Of a pipeline that is called as a whole
    nobody knows: the run stops at the second call."""
    family = FAMILIES.get(spec.pipeline.family) if spec.pipeline.family else None
    above = getattr(family, "negative_prompt_above", None)
    if family is None or above is None:
        return ""
    scales = [getattr(request, family.negative_prompt_scale) for request in spec.requests]
    guided = any(family.negative_prompt_by_default if scale is None else scale > above for scale in scales)
    return f"request.{family.negative_prompt_scale}={above:g}, which switches guidance off" if guided else ""


def _view_class(index: ModelIndex, pipeline: PipelineSpec) -> Any:
    """The class of diffusers that runs over the components: the family's own choice, else the checkpoint's."""
    name = FAMILIES.get(pipeline.family).view_class if pipeline.family else None
    return library_class(name) if name else pipeline_class(index, pipeline.model.trust_remote_code)


def _source(cls: Any) -> str:
    return inspect.getsource(cls.__call__)


def _tell_uncached(spec: RunSpec, denoisers: "Mapping[str, nn.Module]", tell: Any) -> None:
    """Name the denoisers that a step cache leaves alone."""
    if spec.numerics.step_cache is None:
        return
    from framework.runtime.step_cache import can_cache

    without = [
        f"'{name}' ({type(module).__name__})" for name, module in denoisers.items() if not can_cache(type(module))
    ]
    if without:
        tell(f"{CACHE_KEY}: no effect on {', '.join(without)}, for which diffusers has none")
