"""How much host memory of their own a run's weights take, against `budget.host`. No torch."""

from framework.errors import PlanError

MIB = 1024**2


class HostLedger:
    """Books weights that lie in anonymous host memory, page-locked or not; `limit_bytes` None: no bound.

    Pages of a mapped checkpoint file are the kernel's, which drops them when it needs room: they are not booked.
    """

    def __init__(self, limit_bytes: int | None = None) -> None:
        self.limit_bytes = limit_bytes
        self.held_bytes = 0
        self._booked: dict[tuple[str, str], int] = {}

    def book(self, component: str, name: str, size_bytes: int) -> bool:
        """Return whether `size_bytes` may be held for a part of `component`, in place of what it has booked."""
        own = self._booked.get((component, name), 0)
        if self.limit_bytes is not None and self.held_bytes - own + size_bytes > self.limit_bytes:
            return False
        self._booked[component, name] = size_bytes
        self.held_bytes += size_bytes - own
        return True

    def require(self, component: str, name: str, size_bytes: int, why: str) -> None:
        """Book what has to be held. Raises `PlanError` naming component and part where the bound does not allow it."""
        if not self.book(component, name, size_bytes):
            assert self.limit_bytes is not None
            raise PlanError(
                f"component '{component}': '{name}' takes {size_bytes / MIB:.1f} MiB of host memory beside "
                f"{self.held_bytes / MIB:.1f} MiB that are held, and budget.host is {self.limit_bytes / MIB:.1f} MiB; "
                f"{why}"
            )

    def release(self, component: str, name: str) -> None:
        """Give back what is booked for a part, if anything."""
        self.held_bytes -= self._booked.pop((component, name), 0)

    def release_component(self, component: str) -> None:
        """Give back everything that is booked for `component`."""
        for owner, name in list(self._booked):
            if owner == component:
                self.release(owner, name)
