"""Components that the config takes away, and those that it states and no stage uses. No torch, no Hydra."""

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from framework.errors import Problem
from framework.graph import Graph
from framework.spec import PipelineSpec

WHOLE = "diffusers_pipeline"  # the backend that reads its components from the checkpoint's own index
Locate = Callable[[str], str]


def taken_away(pipeline: Mapping[str, Any], locate: Locate) -> Iterator[Problem]:
    """Yield a problem for each component that is null, which takes it away, where something still needs it."""
    for name in [name for name, component in pipeline["components"].items() if component is None]:
        key = f"pipeline.components.{name}"
        if pipeline.get("backend") == WHOLE:
            reason = "a pipeline that is called as a whole has every component of its checkpoint"
            yield Problem(key, reason, locate(key), "remove the line")
        for stage in _users(pipeline, name):
            reason = f"null takes the component away, and stage '{stage}' uses it"
            yield Problem(key, reason, locate(key), "write {} for a component without settings")


def _users(pipeline: Mapping[str, Any], component: str) -> Iterator[str]:
    for name, stage in pipeline["stages"].items():
        if any(use.get("component") == component for use in stage.get("component_uses") or ()):
            yield name


def unused(pipeline: PipelineSpec, graph: Graph, locate: Locate) -> tuple[Problem, ...]:
    """One line for each component that no stage uses; an optional one may be there for another graph."""
    used = graph.used_components()
    keys = [
        f"pipeline.components.{name}"
        for name, component in pipeline.components.items()
        if name not in used and not component.optional
    ]
    return tuple(Problem(key, "no effect: no stage uses this component", locate(key)) for key in keys)
