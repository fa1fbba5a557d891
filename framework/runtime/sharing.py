"""Which components of a graph are in use at once, which take turns, and whether they fit together. No torch."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from framework.errors import PlanError
from framework.graph import Graph, Node
from framework.spec import Placement

LAYERWISE = "layerwise-offload"
WHOLE = "component-offload"
MIB = 1024**2


@dataclass(frozen=True, slots=True)
class Footprint:
    """Device bytes of one component's weights while it is in use and between uses."""

    used_bytes: int
    idle_bytes: int


def used_together(node: Node) -> Iterator[tuple[str, ...]]:
    """Yield the sets of components that one stage may use at the same time.

    Uses of different phases follow each other; those without a phase, or from stage entry on, overlap with all.
    """
    always = [use.component for use in node.component_uses if use.start_at_stage_entry or use.phase is None]
    phases = dict.fromkeys(use.phase for use in node.component_uses if use.component not in always)
    for phase in phases or (None,):
        own = [use.component for use in node.component_uses if use.phase == phase and use.component not in always]
        yield tuple(dict.fromkeys((*always, *own)))


def ring_names(graph: Graph, placements: Mapping[str, Placement], groups: Mapping[str, str | None]) -> dict[str, str]:
    """Return component -> ring for streamed components of one group that take turns in a stage (Wan's two experts)."""
    names: dict[str, str] = {}
    for node in graph.nodes:
        together = [set(group) for group in used_together(node)]
        by_group: dict[str, list[str]] = {}
        for use in node.component_uses:
            placement, group = placements.get(use.component), groups.get(use.component)
            if placement is not None and placement.mode == LAYERWISE and group is not None:
                by_group.setdefault(group, []).append(use.component)
        for group, components in by_group.items():
            turns = dict.fromkeys(components)
            if len(turns) > 1 and not any(len(set(turns) & at_once) > 1 for at_once in together):
                names |= dict.fromkeys(turns, f"{node.spec.name}.{group}")
    return names


def check_fit(
    graph: Graph,
    modes: Mapping[str, str],
    footprints: Mapping[str, Footprint],
    capacity_bytes: int,
    capped: bool = False,
) -> None:
    """Refuse what stays on the device, or whole components that are in use at once, where they do not fit there.

    `modes` and `footprints` are by component; `capped`: the capacity is the user's bound. Weights alone are counted, so
    what passes may still lack room for activations. Raises `PlanError`.
    """
    room = f"{'budget.device leaves' if capped else 'it has'} {capacity_bytes / MIB:.1f} MiB"
    kept = [name for name, found in footprints.items() if found.idle_bytes]
    idle = sum(found.idle_bytes for found in footprints.values())
    if idle > capacity_bytes:
        remedy = " ".join(f"component_residency.{name}={LAYERWISE}" for name in kept)
        raise PlanError(
            f"the weights that stay on the device ({', '.join(kept)}) take {idle / MIB:.1f} MiB, and {room}; "
            f"{LAYERWISE} needs less: {remedy}"
        )
    for node in graph.nodes:
        for group in used_together(node):
            members = [name for name in group if name in footprints]
            whole = [name for name in members if modes[name] == WHOLE]
            others = [name for name in footprints if name not in members]
            needed = sum(footprints[name].used_bytes for name in members)
            needed += sum(footprints[name].idle_bytes for name in others)
            if whole and needed > capacity_bytes:
                raise _refusal(node.spec.name, members, whole, needed, room)


def _refusal(stage: str, members: Sequence[str], whole: Sequence[str], needed: int, room: str) -> PlanError:
    remedy = " ".join(f"component_residency.{name}={LAYERWISE}" for name in whole)
    what = f"{' and '.join(members)} at once" if len(members) > 1 else members[0]
    return PlanError(
        f"stage '{stage}' uses {what}: with {WHOLE} of {', '.join(whole)} the weights on the device take "
        f"{needed / MIB:.1f} MiB, and {room}; {LAYERWISE} needs less: {remedy}"
    )
