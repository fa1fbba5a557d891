"""From the stages of a pipeline to their order and the timeline of component uses. No torch.

A stage class states `inputs`, `optional_inputs`, `outputs` and `component_uses` (or `uses_of(pipeline)`, where they
depend on the pipeline); the YAML may rename values (`inputs: {prompt_embeds: embeds}`) and state its own uses. Values
are matched by name.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from framework.errors import ConfigError, Problem, did_you_mean
from framework.registry import STAGES
from framework.spec import ComponentUse, PipelineSpec, StageSpec

Locate = Callable[[str], str]
"""Returns `file:line` of a dotted key, or an empty text."""


@dataclass(frozen=True, slots=True)
class Node:
    """One stage in its place: `reads` and `writes` map names inside the stage to names of values."""

    spec: StageSpec
    stage_class: Any
    reads: Mapping[str, str]
    optional_reads: Mapping[str, str]
    writes: Mapping[str, str]
    component_uses: tuple[ComponentUse, ...]


@dataclass(frozen=True, slots=True)
class Graph:
    """Stages in execution order; equal ranks keep the order of the YAML."""

    nodes: tuple[Node, ...]

    def timeline(self) -> Iterator[tuple[str, ComponentUse]]:
        """Yield (stage name, use) in execution order."""
        for node in self.nodes:
            for use in node.component_uses:
                yield node.spec.name, use

    def used_components(self) -> frozenset[str]:
        return frozenset(use.component for _, use in self.timeline())


def build_graph(pipeline: PipelineSpec, locate: Locate = lambda key: "") -> Graph:
    """Check the stage graph of `pipeline` and put it in order.

    Raises `ConfigError` with every problem: unknown kinds, stages, components or values, two writers of one value, a
    value nobody writes before it is read, and cycles.
    """
    problems: list[Problem] = []
    nodes = {}
    for name, stage in pipeline.stages.items():
        node = _node(pipeline, stage, problems, locate)
        if node is not None:
            nodes[name] = node
    if problems:
        raise ConfigError(problems)
    writers = _writers(nodes, problems, locate)
    edges = _edges(nodes, writers, problems, locate)
    if problems:
        raise ConfigError(problems)
    return Graph(tuple(nodes[name] for name in _sorted(edges, locate)))


def _node(pipeline: PipelineSpec, stage: StageSpec, problems: list[Problem], locate: Locate) -> Node | None:
    key = f"pipeline.stages.{stage.name}"
    if stage.kind not in STAGES:
        reason = f"unknown stage kind '{stage.kind}'"
        problems.append(Problem(f"{key}.kind", reason, locate(f"{key}.kind"), did_you_mean(stage.kind, STAGES.names())))
        return None
    cls = STAGES.get(stage.kind)
    inputs, optional = tuple(cls.inputs), tuple(getattr(cls, "optional_inputs", ()))
    _check_renames(f"{key}.inputs", stage.inputs, inputs + optional, problems, locate)
    _check_renames(f"{key}.outputs", stage.outputs, tuple(cls.outputs), problems, locate)
    uses = stage.component_uses if stage.component_uses is not None else _own_uses(cls, pipeline)
    for index, use in enumerate(uses):
        if use.component not in pipeline.components:
            place = f"{key}.component_uses[{index}].component"
            hint = did_you_mean(use.component, pipeline.components)
            problems.append(Problem(place, f"unknown component '{use.component}'", locate(place), hint))
    return Node(
        spec=stage,
        stage_class=cls,
        reads={name: stage.inputs.get(name, name) for name in inputs},
        optional_reads={name: stage.inputs.get(name, name) for name in optional},
        writes={name: stage.outputs.get(name, name) for name in cls.outputs},
        component_uses=uses,
    )


def _own_uses(cls: Any, pipeline: PipelineSpec) -> tuple[ComponentUse, ...]:
    """The uses that a stage class states, for this pipeline where it has `uses_of`."""
    if hasattr(cls, "uses_of"):
        return tuple(cls.uses_of(pipeline))
    return tuple(getattr(cls, "component_uses", ()))


def _check_renames(
    key: str, renames: Mapping[str, str], known: tuple[str, ...], problems: list[Problem], locate: Locate
) -> None:
    for name in renames:
        if name not in known:
            place = f"{key}.{name}"
            problems.append(
                Problem(place, f"this kind of stage has no '{name}'", locate(place), did_you_mean(name, known))
            )


def _writers(nodes: Mapping[str, Node], problems: list[Problem], locate: Locate) -> dict[str, str]:
    writers: dict[str, str] = {}
    for name, node in nodes.items():
        for value in node.writes.values():
            if value in writers:
                place = f"pipeline.stages.{name}"
                reason = f"writes '{value}', which stage '{writers[value]}' writes too"
                problems.append(Problem(place, reason, locate(place), "rename one of them with `outputs:`"))
            writers.setdefault(value, name)
    return writers


def _edges(
    nodes: Mapping[str, Node], writers: Mapping[str, str], problems: list[Problem], locate: Locate
) -> dict[str, set[str]]:
    """Return stage -> the stages it must follow: the declared ones and the writers of what it reads."""
    edges: dict[str, set[str]] = {name: set() for name in nodes}
    for name, node in nodes.items():
        key = f"pipeline.stages.{name}"
        for index, other in enumerate(node.spec.after):
            if other not in nodes:
                place = f"{key}.after[{index}]"
                reason = f"unknown stage '{other}'"
                problems.append(Problem(place, reason, locate(place), did_you_mean(other, nodes)))
            else:
                edges[name].add(other)
        for value in node.reads.values():
            if value not in writers:
                reason = f"reads '{value}', which no stage writes"
                problems.append(Problem(key, reason, locate(key), did_you_mean(value, writers)))
        for value in (*node.reads.values(), *node.optional_reads.values()):
            if value in writers:
                edges[name].add(writers[value])
    return edges


def _sorted(edges: Mapping[str, set[str]], locate: Locate) -> list[str]:
    """Kahn's order, taking the first ready stage of the YAML each time."""
    order: list[str] = []
    waiting = dict(edges)
    while waiting:
        ready = next((name for name, before in waiting.items() if before <= set(order)), None)
        if ready is None:
            cycle = _find_cycle(waiting)
            place = f"pipeline.stages.{cycle[0]}"
            raise ConfigError.of(place, f"stages wait for each other: {' -> '.join(cycle)}", locate(place))
        order.append(ready)
        del waiting[ready]
    return order


def _find_cycle(waiting: Mapping[str, set[str]]) -> list[str]:
    path = [next(iter(waiting))]
    while True:
        following = next(name for name in sorted(waiting[path[-1]]) if name in waiting)
        if following in path:
            return [*path[path.index(following) :], following]
        path.append(following)
