"""Tells when a driver has given out more device memory than there was: the rest is the host's, and slow. Imports torch.

Some drivers do so by default (NVIDIA's on Windows and WSL). Nothing fails then, so that nothing is given up either; a
step takes many times longer.
"""

from framework.runtime.events import EventBus, Note
from framework.runtime.placed import Placed
from framework.runtime.sharing import MIB

SLACK_BYTES = 64 * MIB
"""What the figures of a driver and those of an allocator may be apart."""


class SpillWatch:
    """Looks at one run, and tells it once."""

    def __init__(self, placed: Placed, events: EventBus, slack_bytes: int = SLACK_BYTES) -> None:
        self._placed, self._events, self._platform = placed, events, placed.resources.platform
        self._most_bytes = placed.capacity_bytes + min(slack_bytes, placed.capacity_bytes // 50)
        self._said = self._platform.unified

    def look(self) -> None:
        """Tell where tensors took more than was free before the first of them came."""
        if self._said or self._placed.peak_bytes <= self._most_bytes:
            return
        figures = self._platform.memory()
        if figures.free_bytes + figures.allocated_bytes > self._most_bytes:
            return  # another program has given memory back
        self._said = True
        peak, there = self._placed.peak_bytes / MIB, self._placed.capacity_bytes / MIB
        text = (
            f"the driver spills: {peak:.0f} MiB of device memory were given out, and {there:.0f} MiB were free when "
            f"the run began; the rest lies on the host, where every access is slow. budget.device={int(there)}MiB "
            "makes the run stay on the device"
        )
        self._events.emit(Note(text))
