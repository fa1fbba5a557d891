"""What a run does when device memory runs out: free, then place smaller, and say so. Imports torch.

The failed call of a component is made again by whoever asked; this decides what is given up for it.
"""

import gc
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import suppress
from typing import Any

from torch import nn

from framework.compose.selectors import group_of
from framework.errors import FrameworkError
from framework.runtime.events import EventBus, Note
from framework.runtime.failures import ledger_lines
from framework.runtime.notches import Notch, next_notch
from framework.runtime.placed import Placed
from framework.runtime.sharing import MIB
from framework.spec import RecoverSpec, RunSpec

NextNotch = Callable[[Placed, str, Collection[str], Mapping[str, nn.Module], Collection[str]], Notch | None]


def unrepeatable(spec: RunSpec) -> frozenset[str]:
    """Return the components that keep something between calls which a broken-off one may have changed."""
    cached: Any = spec.numerics.step_cache
    if cached in (None, "off"):
        return frozenset()
    parts = spec.pipeline.components.items()
    return frozenset(name for name, part in parts if group_of(name, part.group) == "dit")


class Recovery:
    """Counts the notches of one run. `fixed` are components whose calls cannot be repeated.

    `order` says which change comes next; None leaves nothing to change.
    """

    def __init__(
        self,
        spec: RecoverSpec | None,
        placed: Placed,
        modules: Callable[[], Mapping[str, nn.Module]],
        events: EventBus,
        fixed: Collection[str] = (),
        order: NextNotch = next_notch,
    ) -> None:
        self._spec, self._placed, self._modules, self._events = spec, placed, modules, events
        self._fixed, self._order = frozenset(fixed), order
        self._impossible: set[str] = set()
        self._done: list[str] = []
        self._freed = False
        self.num_notches = 0

    def can_repeat(self, component: str) -> bool:
        return self._spec is not None and not self._placed.resources.platform.unified and component not in self._fixed

    def make_room(self, component: str, in_use: Collection[str]) -> bool:
        """Change one thing for a call of `component`; return whether it is worth another try.

        The component has been brought to rest; `in_use` are all that have an open use, it included.
        """
        assert self._spec is not None, "recovery is off"
        if not self._freed:
            self._freed = True
            freed = self._free_idle()
            if freed > 0:
                self._done.append(f"memory that was idle gave back {freed / MIB:.1f} MiB")
                return True
        while self.num_notches < self._spec.max_notches:
            notch = self._order(self._placed, component, in_use, self._modules(), self._impossible)
            if notch is None:
                return self._change_numerics(component)
            self.num_notches += 1
            if self._take(notch):
                return True
        return False

    def succeeded(self, component: str, where: str, seconds: float) -> None:
        """The call was made after all; `seconds` is what freeing and repeating took."""
        if self._done:
            self._events.emit(
                Note(
                    f"out of device memory in '{component}'{where}: {'; '.join(self._done)}; repeated, {seconds:.2f} s"
                )
            )
        self.forget()

    def forget(self) -> None:
        """The call is over, well or not."""
        self._done, self._freed = [], False

    def account(self, component: str, in_use: Collection[str]) -> Iterator[str]:
        """Yield what to tell beside the error of a call that found no memory in the end."""
        yield from ledger_lines(self._placed, in_use)
        for line in self._done:
            yield f"tried: {line}"
        notch = self._order(self._placed, component, in_use, self._modules(), self._impossible)
        off = self._spec is None
        if notch is not None:
            counted = (
                "recover is off" if off else f"recover.max_notches={self._spec and self._spec.max_notches} is reached"
            )
            yield f"to change: {notch.words} ({counted})"
        else:
            yield "to change: a smaller request, or numerics.vae_tiling=true, which changes the picture"

    def _free_idle(self) -> int:
        platform = self._placed.resources.platform
        before = platform.memory().free_bytes
        gc.collect()
        platform.release_cache()
        return platform.memory().free_bytes - before

    def _take(self, notch: Notch) -> bool:
        """Place a component anew. One that cannot be placed so keeps what it had."""
        name, module = notch.component, self._modules()[notch.component]
        before, free = self._placed.placement(name), self._placed.resources.platform.memory().free_bytes
        try:
            self._placed.place_anew(notch.placement)
            self._placed.strategy(name, module)
        except FrameworkError:
            self._impossible.add(notch.choice)
            self._placed.place_anew(before)
            with suppress(FrameworkError):  # it is built when its use begins, and fails there by name
                self._placed.strategy(name, module)
            return False
        gained = (self._placed.resources.platform.memory().free_bytes - free) / MIB
        gave = f" gave back {gained:.1f} MiB" if gained >= 0.05 else ""
        self._done.append(f"{notch.text}{gave} ({notch.words} says so before a run)")
        return True

    def _change_numerics(self, component: str) -> bool:
        module: Any = self._modules().get(component)
        allowed = self._spec is not None and self._spec.allow_numerics
        if not allowed or not hasattr(module, "enable_tiling") or getattr(module, "use_tiling", True):
            return False
        module.enable_tiling()
        self.num_notches += 1
        self._done.append(
            f"{component} works in tiles from now on, which changes the picture (numerics.vae_tiling=true)"
        )
        return True
