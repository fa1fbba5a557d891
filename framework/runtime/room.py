"""Makes uses ready, and gives something up where that, or a call, finds no memory on the device. Imports torch."""

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass

import torch

from framework.errors import StageError
from framework.runtime.placed import Placed, first_line, outside_inference
from framework.runtime.recovery import Recovery
from framework.runtime.strategy import Strategy
from framework.runtime.timeline import UseKey
from framework.spec import ComponentUse


@dataclass(slots=True)
class OpenUse:
    """A use that has begun. `depth` counts nested `ctx.use`; `held`: it lasts until its stage ends."""

    use: ComponentUse
    stage: str
    strategy: Strategy
    started: float
    dtype: torch.dtype | None
    depth: int = 0
    held: bool = False


class Room:
    """`opened` are the uses of one manager as they are at any time, `strategy` finds that of a component.

    `let_go` gives up what was fetched ahead. Without a `recovery` nothing is given up.
    """

    def __init__(
        self,
        placed: Placed,
        recovery: Recovery | None,
        opened: Mapping[UseKey, OpenUse],
        strategy: Callable[[str], Strategy],
        let_go: Callable[[], None],
    ) -> None:
        self._placed, self._recovery, self._opened = placed, recovery, opened
        self._strategy, self._let_go = strategy, let_go
        self._needed: frozenset[str] = frozenset()  # of the stage that broke off last

    def make_ready(self, opened: OpenUse, dtype: torch.dtype | None) -> None:
        """Let the component of a use come. Raises `StageError` where nothing more can be given up for it."""
        while True:
            try:
                with outside_inference():
                    opened.strategy.prepare(dtype)
                    opened.strategy.wait()
                return
            except torch.OutOfMemoryError as error:
                failure = error
            if not self.make(opened.use.component):
                no_room = StageError(self._no_room(opened, failure))
                self.account(opened.use.component, no_room)
                raise no_room from failure

    def make_all_ready(self) -> None:
        """Before a call is repeated: whatever has been brought to rest or placed anew comes again."""
        for opened in self._opened.values():
            self.make_ready(opened, opened.dtype)

    def make(self, component: str) -> bool:
        """Give something up for a component that found no memory; return whether it is worth another try."""
        if self._recovery is None or not self._recovery.can_repeat(component):
            return False
        self._let_go()
        for opened in self._opened.values():
            if opened.use.component == component:
                with outside_inference():
                    opened.strategy.finish_use()
        changed = self._recovery.make_room(component, self._in_use())
        for opened in self._opened.values():
            opened.strategy = self._strategy(opened.use.component)
        return changed

    def make_between(self, needed: Collection[str], end_uses: Callable[[], None]) -> bool:
        """Give something up for what a stage does between calls, its uses ended; `needed` are its components."""
        self._needed = frozenset(needed)
        if self._recovery is None or not self._recovery.can_repeat(*needed):
            return False
        end_uses()
        self._let_go()
        return self._recovery.make_room(None, needed)

    def account(self, component: str | None, error: BaseException) -> None:
        """Put what lies on the device, and what would help, beside an error of memory."""
        if self._recovery is not None and not self._placed.resources.platform.unified:
            needed = self._needed if component is None else self._in_use()
            for line in self._recovery.account(component, self._in_use(), needed):
                error.add_note(line)

    def _in_use(self) -> frozenset[str]:
        return frozenset(component for component, _ in self._opened)

    def _no_room(self, opened: OpenUse, error: BaseException) -> str:
        component = opened.use.component
        others = ", ".join(sorted(self._in_use() - {component}))
        beside = f" beside {others}" if others else ""
        return (
            f"stage '{opened.stage}': component '{component}' ({self._placed.mode(component)}) has no room on the "
            f"device{beside}: {first_line(error)}; component_residency.{component}=layerwise-offload with "
            f"layerwise.{component}.resident=0 needs least"
        )
