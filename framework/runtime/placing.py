"""From a plan to placed components on their devices, and what they moved. Imports torch."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

from torch import nn

from framework.errors import ConfigError
from framework.graph import Graph
from framework.loading.weights import size_bytes
from framework.memory.courier import STAGING_BYTES, Courier
from framework.memory.layers import find_stacks
from framework.memory.resources import make_resources
from framework.planning.facts import Budgets
from framework.platforms.protocol import Platform
from framework.runtime.events import EventBus, MemoryMeasured, Note
from framework.runtime.placed import RESIDENT, Placed
from framework.runtime.sharing import check_fit, ring_names
from framework.runtime.store import ComponentStore
from framework.spec import EMPTY, PipelineSpec, Placement, RequestSpec

UNBOUNDED = Budgets()


def make_placed(
    pipeline: PipelineSpec,
    graph: Graph,
    placements: Mapping[str, Placement],
    platform: Platform,
    budgets: Budgets = UNBOUNDED,
    elsewhere: Mapping[str, Platform] = EMPTY,
) -> Placed:
    """Return the strategies-to-be of a run, with one set of resources for all: copy stream, rings, host budgets.

    Components `elsewhere` get a copy stream and rings of their platform, and the same books of host memory.
    """
    components = pipeline.components.items()
    resources = make_resources(
        platform,
        pinned_budget_bytes=budgets.pinned,
        host_budget_bytes=budgets.host,
        layers={name: component.layers for name, component in components if component.layers},
        ring_names=ring_names(graph, placements, {name: component.group for name, component in components}),
        tiers={name: placement.tier for name, placement in placements.items() if placement.tier is not None},
    )
    bounded = budgets.pinned is not None or budgets.host is not None
    staging_bytes = 0 if bounded else STAGING_BYTES  # the budget's staging buffers are booked, and those of one device
    others = {
        id(other): replace(resources, courier=Courier(other, staging_bytes), rings={}) for other in elsewhere.values()
    }
    own = {name: others[id(other)] for name, other in elsewhere.items()}
    return Placed(placements, resources, capped=budgets.device is not None, elsewhere=own)


def move(placed: Placed, pipeline: PipelineSpec, graph: Graph, placements: Mapping[str, Placement]) -> None:
    """Let loaded components follow other placements; what stays as it was is left alone."""
    groups = {name: component.group for name, component in pipeline.components.items()}
    placed.change(placements, ring_names(graph, placements, groups))


def effective_placements(
    placements: Mapping[str, Placement], components: frozenset[str], device_type: str, events: EventBus
) -> dict[str, Placement]:
    """Return a placement for each of `components`; on the CPU all are resident, and one line says so."""
    default = {name: Placement(component=name, group=None, mode=RESIDENT) for name in sorted(components)}
    chosen = {name: placements.get(name, default[name]) for name in default}
    moved = [f"{name} ({placement.mode})" for name, placement in chosen.items() if placement.mode != RESIDENT]
    if device_type != "cpu" or not moved:
        return chosen
    events.emit(Note(f"on the CPU every component is resident; no effect for {', '.join(moved)}"))
    return default


def note_depths(pipeline: PipelineSpec, modules: Mapping[str, nn.Module], events: EventBus) -> None:
    """One line for each component whose stacks of layers are not as long as its `num_layers` says."""
    for name, component in pipeline.components.items():
        if component.num_layers and name in modules:
            try:
                stacks = find_stacks(name, modules[name], component.layers or ())
            except ConfigError:  # no such lists: refused where they are to be streamed
                continue
            found = [len(stack.layers) for stack in stacks]
            if found != list(component.num_layers):
                said, is_so = (" + ".join(map(str, lengths)) for lengths in (component.num_layers, found))
                text = f"pipeline.components.{name}.num_layers is {said}, the model has {is_so}; its knobs follow that"
                events.emit(Note(text))


def reads_of(pipeline: PipelineSpec, requests: Sequence[RequestSpec]) -> dict[str, int]:
    """Return how often a request reads a component's weights at most: a denoiser once a step, everything else once."""
    steps = max((request.num_inference_steps or 1 for request in requests), default=1)
    return {name: steps if part.group == "dit" else 1 for name, part in pipeline.components.items()}


def place_all(placed: Placed, store: ComponentStore, graph: Graph) -> None:
    """Build what has no strategy yet, largest first. Raises `PlanError` for what cannot fit."""
    modules = store.modules()
    missing = [name for name, module in modules.items() if not placed.has(name, module)]
    for name in sorted(missing, key=lambda name: -size_bytes(modules[name])):
        placed.strategy(name, modules[name])
    if not placed.resources.platform.unified:
        modes = {name: placed.mode(name) for name in modules}
        check_fit(graph, modes, placed.footprints(), placed.capacity_bytes, placed.capped)


class Meter:
    """Measures one request: weights moved and the device's peak. Make it when the request begins."""

    def __init__(self, placed: Placed, request: int) -> None:
        self._placed = placed
        self._platform = placed.resources.platform
        self._before = placed.moved()
        self._request = request
        placed.begin_measuring()

    def read(self) -> MemoryMeasured:
        moved: dict[str, dict[str, int]] = {}
        for (component, direction), size in sorted((self._placed.moved() - self._before).items()):
            moved.setdefault(component, {})[direction] = size
        if self._platform.unified:
            return MemoryMeasured(self._request, None, moved)
        placed = self._placed
        return MemoryMeasured(self._request, placed.peak_bytes, moved, placed.loose_bytes(), placed.offloaded_bytes())
