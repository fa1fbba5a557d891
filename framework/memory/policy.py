"""Which layers stay on the device and which are streamed: whole numbers and bytes to sets of layers. No torch."""

from collections.abc import Sequence
from dataclasses import dataclass

POLICIES = ("leading", "strided")


def streamed_layers(num_layers: int, num_resident: int, policy: str) -> tuple[int, ...]:
    """Return the streamed layers of one stack, ascending.

    `leading` keeps the first layers; `strided` spreads the streamed ones over the stack, so that each transfer has
    compute to hide behind. Both stream the same number of layers.
    """
    num_streamed = num_layers - min(max(num_resident, 0), num_layers)
    if policy == "leading":
        return tuple(range(num_layers - num_streamed, num_layers))
    if policy == "strided":
        return tuple(round(k * num_layers / num_streamed) for k in range(num_streamed))
    raise ValueError(f"unknown residency policy '{policy}'; choose from {', '.join(POLICIES)}")


def streamed_within(sizes_bytes: Sequence[int], budget_bytes: int, policy: str) -> tuple[int, ...]:
    """Return the streamed layers of a component whose residents may take `budget_bytes`.

    `sizes_bytes` are those of all layers in call order. The largest resident count that fits is taken, so that a
    larger budget never keeps fewer layers.
    """
    total = sum(sizes_bytes)
    for num_resident in range(len(sizes_bytes), 0, -1):
        streamed = streamed_layers(len(sizes_bytes), num_resident, policy)
        if total - sum(sizes_bytes[i] for i in streamed) <= budget_bytes:
            return streamed
    return tuple(range(len(sizes_bytes)))


@dataclass(frozen=True, slots=True)
class Knobs:
    """A layerwise component's knobs in whole numbers.

    `prefetch` and `resident` hold one count for each stack; `resident_bytes` replaces `resident` where it is set.
    """

    prefetch: tuple[int, ...]
    resident: tuple[int, ...]
    resident_bytes: int | None = None
    policy: str = "strided"
    lifetime: str = "use"
    park: bool = False  # drop what lies outside the layers between uses

    @property
    def depth(self) -> int:
        """Layers loaded ahead: one ring serves all stacks, so the deepest wins."""
        return max(self.prefetch, default=0)

    def streamed(self, stack_sizes_bytes: Sequence[Sequence[int]]) -> frozenset[int]:
        """Return the streamed layers, numbered through all stacks in order; sizes are those of each stack's layers."""
        if self.resident_bytes is not None:
            flat = [size for sizes in stack_sizes_bytes for size in sizes]
            return frozenset(streamed_within(flat, self.resident_bytes, self.policy))
        chosen: set[int] = set()
        first = 0
        for sizes, resident in zip(stack_sizes_bytes, self.resident, strict=True):
            chosen.update(first + i for i in streamed_layers(len(sizes), resident, self.policy))
            first += len(sizes)
        return frozenset(chosen)
