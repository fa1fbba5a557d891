"""From a pipeline and its graph to a component store: what is needed, in which order, with events. Imports torch."""

import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch
from torch import nn

from framework.errors import LoadError
from framework.graph import Graph
from framework.loading.classes import library_class, pipeline_class
from framework.loading.components import Part, find_part, load_part, load_shell
from framework.loading.index import ModelIndex, read_index
from framework.loading.needed import needed_components
from framework.loading.post_process import PostProcess, post_process_on
from framework.loading.schedulers import override_scheduler
from framework.loading.source import locate_model
from framework.loading.spares import Spares, weights_key
from framework.loading.weights import own_weights, size_bytes
from framework.memory.malloc import returned_when_freed
from framework.quantization import Quantization
from framework.registry import FAMILIES
from framework.runtime.events import ComponentLoaded, ComponentLoading, EventBus, Note
from framework.runtime.store import ComponentStore
from framework.spec import EMPTY, ComponentSpec, ModelSpec, PipelineSpec, Placement

Check = Callable[[], None]
"""Raises `Interrupted` when the user has asked for the end of the run."""

Place = Callable[[str, nn.Module], object]
"""Takes a component that lies on the host, or in its mapped file, to where its plan has it."""

RESIDENT = "resident"


def load_store(
    pipeline: PipelineSpec,
    graph: Graph,
    placements: Mapping[str, Placement],
    events: EventBus,
    device: torch.device | None = None,
    check: Check = lambda: None,
    place: Place = lambda name, module: None,
    *,
    uses: Mapping[str, int] = EMPTY,
    post_process: Mapping[str, PostProcess] = EMPTY,
    quantized: Mapping[str, Quantization] = EMPTY,
    spares: Spares | None = None,
) -> ComponentStore:
    """Load what `graph` uses, and return the store that owns it.

    The bytes of the run, known from the headers, times `uses` (how often a request reads a component; 1 where it is
    not said) give the order, most first: who comes first is pinned first; tokenizers come before all, so that one that
    cannot be had is known at once. `place` gets each used module before the weights of the next are read, so the host
    holds no more than one that is not where it belongs. `post_process` holds what must be done on the device with a
    whole component before that; `spares` are taken before files are read. Modules that the graph does not use but the
    pipeline class asks about are built from their config alone. Raises `LoadError` before any weight is read when
    something is missing.
    """
    device = device or torch.device("cpu")
    index = read_index(locate_model(pipeline.model, pipeline.hints))
    quiet_libraries()
    used = graph.used_components()
    needed = needed_components(pipeline, index, used)
    parts = [
        find_part(index, pipeline.model, _component(pipeline, name), name in used, quantized.get(name))
        for name in needed
    ]
    _check_variant(pipeline.model, parts)
    view_class = view_class_of(pipeline, index)
    keys = {part.name: weights_key(part) for part in parts if part.name in used and part.name not in post_process}
    spares = spares or Spares()
    spares.keep_only([key for key in keys.values() if key is not None])
    loaded: dict[str, Any] = {}
    for part in sorted(parts, key=lambda part: (part.is_module, -part.run_bytes * uses.get(part.name, 1))):
        check()
        if not part.is_module:
            loaded[part.name] = _load_helper(part, pipeline)
        elif part.name not in used:
            loaded[part.name] = load_shell(part)
        else:
            mode = placements[part.name].mode if part.name in placements else RESIDENT
            process = post_process.get(part.name)
            spare = spares.take(keys.get(part.name))
            loaded[part.name] = _load_module(part, pipeline.model, mode, device, place, process, events, spare)
    return ComponentStore(
        pipeline_class=view_class,
        components={name: loaded.get(name) for name in (*index.components, *_left_out(view_class, index))},
        options=index.options,
        managed=frozenset(name for name in used if isinstance(loaded.get(name), nn.Module)),
        device=device,
        identities={part.name: _identity(part) for part in parts},
        weights_keys=keys,
    )


def quiet_libraries() -> None:
    """Keep the libraries' own progress bars off: progress is ours to show."""
    from diffusers.utils import logging as diffusers_logging
    from transformers.utils import logging as transformers_logging

    diffusers_logging.disable_progress_bar()
    transformers_logging.disable_progress_bar()


def _load_helper(part: Part, pipeline: PipelineSpec) -> Any:
    loaded = load_part(part, pipeline.model)
    return override_scheduler(loaded, pipeline.scheduler) if part.name == "scheduler" else loaded


def _load_module(
    part: Part,
    model: ModelSpec,
    mode: str,
    device: torch.device,
    place: Place,
    process: PostProcess | None,
    events: EventBus,
    spare: nn.Module | None,
) -> nn.Module:
    """Load, finish and place one component. Tensors stay in the mapped file until then, except for the CPU's own."""
    events.emit(ComponentLoading(part.name, mode))
    started = time.perf_counter()
    if spare is not None:
        events.emit(Note(f"{part.name}: its weights are those of the run before"))
    with returned_when_freed():
        module: nn.Module = load_part(part, model) if spare is None else spare
        if device.type == "cpu":
            own_weights(module)
    if process is not None:
        post_process_on(device, part.name, module, process)
    loaded_bytes = size_bytes(module)
    place(part.name, module)
    seconds = time.perf_counter() - started
    events.emit(ComponentLoaded(part.name, mode, part.dtype or "none", loaded_bytes, seconds))
    return module


def _left_out(view_class: Any, index: ModelIndex) -> list[str]:
    """Components that the class wants and an older index does not name at all; they count as None."""
    wanted = getattr(view_class, "_optional_components", None) or ()
    return [name for name in wanted if name not in index.components and name not in index.options]


def _check_variant(model: ModelSpec, parts: list[Part]) -> None:
    """A component may lack the variant, as in diffusers; a variant that no component has is a mistake."""
    if model.variant and not any(f".{model.variant}" in file.name for part in parts for file in part.files):
        raise LoadError(f"pipeline.model.variant: no component has weights of variant '{model.variant}'")


def _component(pipeline: PipelineSpec, name: str) -> ComponentSpec:
    return pipeline.components.get(name) or ComponentSpec(name=name)


def view_class_of(pipeline: PipelineSpec, index: ModelIndex) -> Any:
    """The index's class, or another of diffusers that the family puts over the same components.

    A family refuses a folder that is not its own.
    """
    found = pipeline_class(index, pipeline.model.trust_remote_code)
    if pipeline.family is not None:
        family = FAMILIES.get(pipeline.family)
        known = family.pipeline_classes
        if index.pipeline_class.library == "diffusers" and found.__name__ not in known:
            raise LoadError(
                f"{index.folder} holds a {found.__name__}, which family '{pipeline.family}' does not run "
                f"({', '.join(known)})"
            )
        view_class = getattr(family, "view_class", None)
        if view_class is not None and index.pipeline_class.library == "diffusers":
            return library_class(view_class)
    return found


def _identity(part: Part) -> str:
    """Text that changes with the weights: the folder and its files' names, sizes and times, and how they are stored."""
    files = [f"{file.name}:{_stamp(file)}" for file in sorted(part.folder.iterdir()) if file.is_file()]
    if part.single is not None:
        files.append(f"{part.single.resolve()}:{_stamp(part.single)}")
    stored = [part.quantization.identity] if part.quantization is not None else []
    return "|".join([str(part.folder.resolve()), part.dtype or "", *stored, *files])


def _stamp(file: Path) -> str:
    status = file.stat()
    return f"{status.st_size}:{status.st_mtime_ns}"
