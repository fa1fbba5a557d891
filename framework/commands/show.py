"""`show`: a pipeline's stages and components. No torch."""

import json
from typing import Any

from framework.commands.table import format_table
from framework.compose.arguments import COMPOSING, Flags
from framework.graph import Graph, Node, build_graph
from framework.spec import ComponentUse, RunSpec

SUMMARY = "Show a pipeline: its stages in order, what they read and write, and its components."
EXAMPLES = ("framework show digits", "framework show pipeline=wan2 --graph", "framework show wan2 --json")
USAGE = "[PIPELINE] [KEY=VALUE ...] [FLAGS]"
ACCEPTED = COMPOSING | {"json", "graph"}


def main(overrides: list[str], flags: Flags) -> int:
    """Print tables, JSON, or the graph as text and as Mermaid; a bare word is the pipeline's name."""
    from framework.compose.composer import compose

    words = [word if "=" in word or word.startswith("~") else f"pipeline={word}" for word in overrides]
    spec = compose(words, flags)
    graph = build_graph(spec.pipeline)
    if flags.json:
        print(json.dumps(to_json(spec, graph), indent=2, ensure_ascii=False))
    elif flags.graph:
        print(f"{graph_text(graph)}\n\n{mermaid(graph)}")
    else:
        print(_tables(spec, graph))
    return 0


def to_json(spec: RunSpec, graph: Graph) -> dict[str, Any]:
    """The pipeline as plain data."""
    pipeline = spec.pipeline
    return {
        "name": pipeline.name,
        "family": pipeline.family,
        "backend": pipeline.backend,
        "source": pipeline.model.source,
        "stages": [_node_json(node) for node in graph.nodes],
        "components": {
            name: {
                "group": spec.placements[name].group,
                "dtype": component.dtype or pipeline.model.dtype,
                "layers": list(component.layers),
                "num_layers": None if component.num_layers is None else list(component.num_layers),
                "mode": spec.placements[name].mode,
            }
            for name, component in pipeline.components.items()
        },
    }


def _node_json(node: Node) -> dict[str, Any]:
    return {
        "name": node.spec.name,
        "kind": node.spec.kind,
        "after": list(node.spec.after),
        "reads": list(node.reads.values()),
        "may_read": list(node.optional_reads.values()),
        "writes": list(node.writes.values()),
        "component_uses": [{"component": use.component, "phase": use.phase} for use in node.component_uses],
    }


def graph_text(graph: Graph) -> str:
    """One line a stage: what it reads, its uses, what it writes."""
    lines = []
    for node in graph.nodes:
        uses = ", ".join(_use(use) for use in node.component_uses)
        reads, writes = ", ".join(node.reads.values()), ", ".join(node.writes.values())
        line = f"{reads or '(prompt)'} -> {node.spec.name} [{node.spec.kind}] -> {writes or '(files)'}"
        lines.append(f"{line}  uses {uses}" if uses else line)
    return "\n".join(lines)


def mermaid(graph: Graph) -> str:
    """The graph in Mermaid's language: an edge for every value and for every `after` that carries none."""
    writers = {value: node.spec.name for node in graph.nodes for value in node.writes.values()}
    lines = ["flowchart LR"]
    for node in graph.nodes:
        lines.append(f'    {node.spec.name}["{node.spec.name}<br/>{node.spec.kind}"]')
    for node in graph.nodes:
        values: dict[str, list[str]] = {}
        for value in (*node.reads.values(), *node.optional_reads.values()):
            if value in writers:
                values.setdefault(writers[value], []).append(value)
        for name in node.spec.after:
            values.setdefault(name, [])
        for writer, names in values.items():
            label = f"|{', '.join(names)}|" if names else ""
            lines.append(f"    {writer} -->{label} {node.spec.name}")
    return "\n".join(lines)


def _use(use: ComponentUse) -> str:
    return f"{use.component} ({use.phase})" if use.phase else use.component


def _tables(spec: RunSpec, graph: Graph) -> str:
    pipeline = spec.pipeline
    stages = [
        (
            node.spec.name,
            node.spec.kind,
            ", ".join(node.reads.values()) or "-",
            ", ".join(node.writes.values()) or "-",
            ", ".join(_use(use) for use in node.component_uses) or "-",
        )
        for node in graph.nodes
    ]
    components = [
        (
            name,
            spec.placements[name].group or "(none)",
            component.dtype or pipeline.model.dtype or "as stored",
            ", ".join(component.layers) or "-",
            "-" if component.num_layers is None else "+".join(str(number) for number in component.num_layers),
            spec.placements[name].mode,
        )
        for name, component in pipeline.components.items()
    ]
    return "\n".join(
        (
            f"{pipeline.name}: {pipeline.model.source} (family {pipeline.family}, backend {pipeline.backend})",
            "",
            format_table(("stage", "kind", "reads", "writes", "uses"), stages),
            "",
            format_table(("component", "group", "dtype", "layers", "number", "mode"), components),
        )
    )
