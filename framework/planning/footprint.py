"""Device bytes of one component's weights by its placement, as the engine allocates them. No torch."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from framework.memory.policy import Knobs
from framework.planning.facts import EMPTY, Choice, ComponentSizes
from framework.planning.packing import granules
from framework.planning.problem import LAYERWISE, RESIDENT

USE, PERMANENT = "use", "permanent"


@dataclass(frozen=True, slots=True)
class Footprint:
    """`used_bytes` in a use and `idle_bytes` between uses, both without the ring of `slots` slots of `slot_bytes`.

    `parts` names what `used_bytes` is made of. `stays`: what a use holds, ring included, is kept from the first one on.
    `ring` is the name of a ring that others share.
    """

    used_bytes: int
    idle_bytes: int
    slots: int = 0
    slot_bytes: int = 0
    stays: bool = False
    ring: str = ""
    parts: Mapping[str, int] = field(default_factory=lambda: EMPTY)

    @property
    def ring_bytes(self) -> int:
        return self.slots * self.slot_bytes


def resident_bytes(sizes: ComponentSizes) -> int:
    """Return the device bytes where every tensor is allocated by itself."""
    return whole_bytes(sizes) if sizes.resident_bytes is None else sizes.resident_bytes


def whole_bytes(sizes: ComponentSizes) -> int:
    """Return the device bytes where the component moves in chunks."""
    if sizes.whole_bytes is not None:
        return sizes.whole_bytes
    return granules(sum(layer_sizes(sizes)) + sizes.table_bytes) + rest_bytes(sizes)


def rest_bytes(sizes: ComponentSizes) -> int:
    """Return the device bytes of what lies outside the layers where those are streamed."""
    return granules(sizes.leftover_bytes) + granules(sizes.buffer_bytes)


def layer_sizes(sizes: ComponentSizes) -> tuple[int, ...]:
    """Return the parcel of each layer, numbered through all stacks."""
    return tuple(layer.size_bytes for stack in sizes.stacks for layer in stack.layers)


def streamed_of(sizes: ComponentSizes, choice: Choice) -> frozenset[int]:
    """Return the numbers of the streamed layers, as the engine chooses them."""
    counts = _per_stack(sizes, choice.resident)
    knobs = Knobs(_per_stack(sizes, choice.prefetch), counts, policy=choice.policy)
    own = [[layer.size_bytes for layer in stack.layers] for stack in sizes.stacks]
    flat = [size for stack in own for size in stack]
    return frozenset(i for i in knobs.streamed(own) if flat[i])


def footprint(sizes: ComponentSizes, choice: Choice, parked: bool = False) -> Footprint:
    """Return what `choice` takes on the device."""
    if choice.mode == RESIDENT:
        own = resident_bytes(sizes)
        return Footprint(own, own, parts={"weights": own})
    if choice.mode != LAYERWISE:
        own = whole_bytes(sizes)
        return Footprint(own, 0, parts={"weights": own})
    layers, streamed = layer_sizes(sizes), streamed_of(sizes, choice)
    kept = sum(granules(size) for i, size in enumerate(layers) if i not in streamed)
    rest = rest_bytes(sizes)
    idle = 0 if parked else rest
    return Footprint(
        kept + rest,
        idle + kept if choice.lifetime == PERMANENT else idle,
        slots=min(depth_of(choice) + 1, len(streamed)),
        slot_bytes=granules(max((layers[i] for i in streamed), default=0)),
        stays=choice.lifetime != USE,
        parts={"resident layers": kept, "outside layers": rest},
    )


def depth_of(choice: Choice) -> int:
    """Layers loaded ahead: one ring serves all stacks, so the deepest wins."""
    return max(choice.prefetch, default=0)


def _per_stack(sizes: ComponentSizes, counts: Sequence[int]) -> tuple[int, ...]:
    return tuple(counts) or (0,) * len(sizes.stacks)
