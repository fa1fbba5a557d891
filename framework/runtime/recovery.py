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
from framework.runtime.notches import NextNotch, Notch, next_notch, waiting_notch
from framework.runtime.placed import Placed
from framework.runtime.sharing import MIB, WHOLE
from framework.spec import RecoverSpec, RunSpec


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

    def can_repeat(self, *components: str) -> bool:
        possible = self._spec is not None and not self._placed.resources.platform.unified
        return possible and self._fixed.isdisjoint(components)

    def make_room(self, component: str | None, in_use: Collection[str]) -> bool:
        """Change one thing for a call of `component`, or for what a stage does between calls (None).

        Returns whether it is worth another try. The component has been brought to rest; `in_use` are all that the
        stage needs at once, it included.
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

    def succeeded(self, where: str, seconds: float) -> None:
        """It was done after all; `seconds` is what freeing and repeating took."""
        if self._done:
            self._events.emit(
                Note(f"out of device memory in {where}: {'; '.join(self._done)}; repeated, {seconds:.2f} s")
            )
        self.forget()

    def forget(self) -> None:
        """The call is over, well or not."""
        self._done, self._freed = [], False

    def account(self, component: str | None, in_use: Collection[str], needed: Collection[str]) -> Iterator[str]:
        """Yield what to tell beside the error of a call that found no memory in the end.

        `in_use` is on the device for a use, `needed` is what the stage or the call takes at once.
        """
        yield from ledger_lines(self._placed, in_use)
        for line in self._done:
            yield f"tried: {line}"
        notch = self._order(self._placed, component, needed, self._modules(), self._impossible)
        if notch is not None:
            yield f"to change: {notch.words} ({self._why_not()})"
        elif hasattr(self._modules().get(component or ""), "enable_tiling"):
            yield "to change: a smaller request, or numerics.vae_tiling=true, which changes the picture"
        else:
            yield "to change: a smaller request"

    def _why_not(self) -> str:
        """Why a run does not do by itself what it says."""
        if self._spec is None:
            return "recover is off"
        if self.num_notches >= self._spec.max_notches:
            return f"recover.max_notches={self._spec.max_notches} is reached"
        return "with numerics.step_cache a call cannot be repeated"

    def _free_idle(self) -> int:
        platform = self._placed.resources.platform
        before = platform.memory().free_bytes
        gc.collect()
        platform.release_cache()
        return platform.memory().free_bytes - before

    def _held_bytes(self) -> int:
        return self._placed.resources.platform.memory().allocated_bytes

    def _take(self, notch: Notch) -> bool:
        """Place a component anew. One that finds no room even so waits on the host for its next use."""
        name, module = notch.component, self._modules()[notch.component]
        before, held = self._placed.placement(name), self._held_bytes()
        waiting = waiting_notch(before)
        for chosen in (notch, waiting) if before.mode != WHOLE else (notch,):
            self._placed.place_anew(chosen.placement)
            try:
                self._placed.strategy(name, module)
            except FrameworkError:
                self._impossible.add(chosen.choice)
                continue
            gained = (held - self._held_bytes()) / MIB
            gave = f" gave back {gained:.1f} MiB" if gained >= 0.05 else ""
            self._done.append(f"{chosen.text}{gave} (before a run: {chosen.words})")
            return True
        self._placed.place_anew(before)
        with suppress(FrameworkError):  # it is built when its use begins, and fails there by name
            self._placed.strategy(name, module)
        return False

    def _change_numerics(self, component: str | None) -> bool:
        module: Any = self._modules().get(component) if component is not None else None
        allowed = self._spec is not None and self._spec.allow_numerics
        if not allowed or not hasattr(module, "enable_tiling") or getattr(module, "use_tiling", True):
            return False
        module.enable_tiling()
        self.num_notches += 1
        self._done.append(
            f"{component} works in tiles from now on, which changes the picture (numerics.vae_tiling=true)"
        )
        return True
