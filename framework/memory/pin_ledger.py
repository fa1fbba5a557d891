"""Who may page-lock host memory: a budget for each process, asked layer by layer. No torch."""

from collections.abc import Iterable
from dataclasses import dataclass

from framework.memory.host_budget import HostMemory

GIB = 1024**3
RESERVE_BYTES = 2 * GIB


@dataclass(frozen=True, slots=True)
class PinWant:
    """One layer that would like to be pinned; `uses` is how often a request copies it (steps, or 1)."""

    component: str
    layer: str
    size_bytes: int
    uses: int = 1

    @property
    def benefit_bytes(self) -> int:
        """Bytes that a request copies from it."""
        return self.size_bytes * max(1, self.uses)


@dataclass(frozen=True, slots=True)
class PinDecision:
    """What was decided and why; `left_bytes` is what could be spent before."""

    component: str
    layer: str
    size_bytes: int
    granted: bool
    left_bytes: int
    limit: str


class PinLedger:
    """Grants pinned memory up to what the host has left, less max(5 %, 2 GiB).

    The cap is hard for the first asker too. `decisions` holds every grant and refusal in order.
    """

    def __init__(self, memory: HostMemory, budget_bytes: int | None = None) -> None:
        spendable = max(0, memory.available_bytes - max(memory.available_bytes // 20, RESERVE_BYTES))
        capped = budget_bytes is not None and budget_bytes < spendable
        self.limit = "budget.pinned" if capped else memory.limit
        self.spendable_bytes = min(spendable, budget_bytes) if budget_bytes is not None else spendable
        self.granted_bytes = 0
        self.decisions: list[PinDecision] = []
        self._known: dict[tuple[str, str], PinDecision] = {}

    @property
    def left_bytes(self) -> int:
        return self.spendable_bytes - self.granted_bytes

    def plan(self, wants: Iterable[PinWant]) -> None:
        """Decide for many layers at once, most useful bytes first; equal ones keep their order."""
        for want in sorted(wants, key=lambda want: -want.benefit_bytes):
            self.request(want.component, want.layer, want.size_bytes)

    def request(self, component: str, layer: str, size_bytes: int) -> bool:
        """Return whether `layer` may be pinned, booking it if so; asking again gives the same answer."""
        known = self._known.get((component, layer))
        if known is not None and known.size_bytes == size_bytes:
            return known.granted
        self.release(component, layer)
        granted = size_bytes <= self.left_bytes
        return self._decide(PinDecision(component, layer, size_bytes, granted, self.left_bytes, self.limit))

    def refuse(self, component: str, layer: str) -> None:
        """The platform would not pin what was granted: book it as refused by the machine."""
        decided = self._known[component, layer]
        self.release(component, layer)
        self._decide(PinDecision(component, layer, decided.size_bytes, False, self.left_bytes, "platform"))

    def release(self, component: str, layer: str) -> None:
        """Give back what was booked for `layer`, if anything."""
        decided = self._known.pop((component, layer), None)
        if decided is not None and decided.granted:
            self.granted_bytes -= decided.size_bytes

    def release_component(self, component: str) -> None:
        """Give back everything that was booked for `component`."""
        for owner, layer in list(self._known):
            if owner == component:
                self.release(owner, layer)

    def _decide(self, decision: PinDecision) -> bool:
        if decision.granted:
            self.granted_bytes += decision.size_bytes
        self._known[decision.component, decision.layer] = decision
        self.decisions.append(decision)
        return decision.granted
