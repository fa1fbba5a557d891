"""Failures that a test plants: full memory, broken copies, a slow bus, a shrinking card. No torch."""

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from framework.platforms.sim.errors import SimFault, SimOOM

if TYPE_CHECKING:
    from framework.platforms.sim.ledger import Ledger


@dataclass(slots=True)
class Faults:
    """Plans of failures; counts run from 1 and start when the plan is made."""

    link_slowdown: float = 1.0  # copies over the bus take this many times longer
    _allocations: int = 0
    _copies: int = 0
    _fail_allocations: set[int] = field(default_factory=set)
    _fail_copies: set[int] = field(default_factory=set)
    _shrink_at: dict[int, int] = field(default_factory=dict)

    def fail_allocation(self, nth: int = 1) -> None:
        """Let the `nth` allocation from now raise `SimOOM`."""
        self._fail_allocations.add(self._allocations + nth)

    def fail_copy(self, nth: int = 1) -> None:
        """Let the `nth` copy between host and device from now raise `SimFault`."""
        self._fail_copies.add(self._copies + nth)

    def shrink_capacity(self, capacity_bytes: int, nth: int = 1) -> None:
        """Let the device have only `capacity_bytes` from its `nth` allocation from now on."""
        self._shrink_at[self._allocations + nth] = capacity_bytes

    def clear(self) -> None:
        """Plan no failures any more; counts and a shrunk capacity stay."""
        self.link_slowdown = 1.0
        self._fail_allocations.clear()
        self._fail_copies.clear()
        self._shrink_at.clear()

    def on_allocate(self, ledger: "Ledger", size_bytes: int) -> None:
        """Called before every allocation."""
        self._allocations += 1
        capacity = self._shrink_at.pop(self._allocations, None)
        if capacity is not None:
            ledger.capacity_bytes = capacity
        if self._allocations in self._fail_allocations:
            raise SimOOM(
                f"{ledger.name} is out of memory (planted): tried to allocate {size_bytes} bytes with "
                f"{ledger.live_bytes} bytes held of {ledger.capacity_bytes}"
            )

    def on_copy(self, direction: str, size_bytes: int) -> None:
        """Called before every copy between host and device."""
        self._copies += 1
        if self._copies in self._fail_copies:
            raise SimFault(f"copy {direction} of {size_bytes} bytes failed (planted)")
