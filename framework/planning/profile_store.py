"""A component store of full size without a weight: from a checkpoint's configs, or from its sheet. Imports torch."""

import inspect
from typing import Any

import torch
from torch import nn

from framework.graph import Graph
from framework.loading.classes import component_class, library_class, pipeline_class
from framework.loading.components import find_part, load_part
from framework.loading.index import ClassName, ModelIndex
from framework.loading.load import quiet_libraries
from framework.loading.schedulers import override_scheduler
from framework.planning.profile_calls import CallLog, WatchedComponent
from framework.planning.profile_dispatch import ShapePass
from framework.planning.profile_modules import shape_module
from framework.planning.profile_source import Described
from framework.planning.profile_stand_ins import made_by_default, stand_in
from framework.registry import FAMILIES
from framework.runtime.store import ComponentStore
from framework.spec import ComponentSpec, PipelineSpec

HELPERS = ("tokenizer", "processor", "image_processor", "feature_extractor")


def shape_store(
    pipeline: PipelineSpec, graph: Graph, described: Described, pass_: ShapePass, log: CallLog
) -> ComponentStore:
    """Build what a run of `graph` would load, and watch the calls of what it uses.

    Raises `LoadError` for classes that are not known here.
    """
    quiet_libraries()
    index, used = described.index, graph.used_components()
    components: dict[str, Any] = {}
    watched: list[WatchedComponent] = []
    for name, wanted in index.components.items():
        if wanted is None:
            components[name] = None
            continue
        components[name] = _component(pipeline, described, name, wanted, pass_)
        if name in used and isinstance(components[name], nn.Module):
            paths = pipeline.components[name].layers if name in pipeline.components else ()
            watched.append(WatchedComponent(name, components[name], paths, pass_, log))
    view_class = _view_class(pipeline, index)
    _stand_in(view_class, index, components)
    store = ComponentStore(
        pipeline_class=view_class,
        components=components,
        options=index.options,
        managed=frozenset(name for name in used if isinstance(components.get(name), nn.Module)),
        device=torch.device("sim", 0),
        identities={},
    )
    for component in watched:
        component.watch_entry_points()
    return store


def _component(pipeline: PipelineSpec, described: Described, name: str, wanted: ClassName, pass_: ShapePass) -> Any:
    cls = component_class(described.index, name, wanted, pipeline.model.trust_remote_code)
    if isinstance(cls, type) and issubclass(cls, nn.Module):
        dtype = getattr(torch, described.dtypes[name])
        return shape_module(cls, described.configs[name], dtype, pass_.memory, name)
    if described.has_files:
        spec = pipeline.components.get(name) or ComponentSpec(name=name)
        loaded = load_part(find_part(described.index, pipeline.model, spec, with_weights=False), pipeline.model)
    else:
        loaded = cls.from_config(dict(described.configs[name]))
    return override_scheduler(loaded, pipeline.scheduler) if name == "scheduler" else loaded


def _stand_in(view_class: Any, index: ModelIndex, components: dict[str, Any]) -> None:
    """Put something in the place of helpers that a pipeline needs and a sheet does not describe."""
    for name, parameter in list(inspect.signature(view_class.__init__).parameters.items())[1:]:
        if name in components or name in index.options:
            continue
        if name.startswith(HELPERS):
            encoder = components.get(name.replace("tokenizer", "text_encoder").replace("processor", "text_encoder"))
            components[name] = stand_in(name, getattr(encoder, "config", None))
        elif parameter.default is inspect.Parameter.empty:
            components[name] = made_by_default(parameter.annotation)


def _view_class(pipeline: PipelineSpec, index: ModelIndex) -> Any:
    """The class that a run puts over the components: the index's, or the one that the family asks for."""
    wanted = getattr(FAMILIES.get(pipeline.family), "view_class", None) if pipeline.family is not None else None
    return library_class(wanted) if wanted else pipeline_class(index, pipeline.model.trust_remote_code)
