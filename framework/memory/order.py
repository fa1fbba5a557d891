"""The order in which a component's layers are called, learned as it happens, and what will be needed next. No torch.

Calls are kept as occurrences in passes, not as identities: a layer may run twice in a pass, or only in every other one.
A pass is one forward of the component; without one (a VAE's `decode`) it ends when its first layer comes again.
What the order predicts is only prefetched; a wrong guess costs a load on demand, never a wrong weight.
"""

from collections.abc import Collection, Sequence
from itertools import chain
from typing import TypeAlias

Pass: TypeAlias = tuple[int, ...]


class CallOrder:
    """Predicts from the passes of the last complete use; else from the last pass; else from the declared order.

    `window` holds the next `size` different streamed layers after the last call; it runs on into the following pass.
    """

    def __init__(self, declared: Sequence[int], streamed: Collection[int], size: int) -> None:
        self._declared: Pass = tuple(declared)
        self._streamed = frozenset(streamed)
        self._size = size
        self._history: tuple[Pass, ...] = ()
        self._tables: dict[tuple[Pass, Pass], list[Pass]] = {}
        self._in_pass = False
        self._position: int = 0
        self._pass: Pass = ()
        self._following: Pass = ()
        self._table: list[Pass] = []
        self.window: Pass = ()
        self.start_use()

    def start_use(self) -> None:
        """Forget where the last use stood, not what it taught."""
        self._passes: list[Pass] = []
        self._total: int | None = None  # passes of this use, where somebody has said
        self._heard: list[int] = []
        self._on_track = True
        self._expect()

    def finish_use(self) -> None:
        """Keep the passes of a use, unless it broke off inside one."""
        if not self._in_pass:
            self._close_pass()
            if self._passes:
                self._history = tuple(self._passes)
        self._in_pass = False
        self.start_use()

    def forget_length(self) -> None:
        """Expect passes like the last one, however many; between uses only."""
        if self._history:
            self._declared, self._history = self._history[-1], ()
            self._expect()

    def expect_steps(self, done: int, total: int) -> None:
        """`done` of `total` steps of this use are over: expect as many passes in each of those to come."""
        per_step, rest = divmod(len(self._passes), done)
        if per_step and not rest and not self._heard:
            self._total = per_step * total
            self._expect()

    def start_pass(self) -> None:
        """The component's forward begins. One that broke off before teaches nothing."""
        if self._in_pass:
            self._heard = []
            self._expect()
        elif self._heard:
            self._turn()
        self._in_pass = True

    def finish_pass(self) -> None:
        """The component's forward has returned."""
        if self._in_pass:
            self._in_pass = False
            if self._heard:
                self._turn()

    def call(self, layer: int) -> None:
        """A layer is being called: move on, and set `window`."""
        position = self._position
        if position == len(self._pass) or self._pass[position] != layer:
            position = self._find(layer)
        else:
            position += 1
        self._heard.append(layer)
        self._position = position
        self.window = self._table[position]

    def ahead(self) -> Pass:
        """Return the rest of this pass and the whole of the following one."""
        return self._pass[self._position :] + self._following

    def _find(self, layer: int) -> int:
        """The position after `layer` when it is not the one expected."""
        if not self._in_pass and self._heard and self._heard[0] == layer:
            self._turn()
        for position in chain(range(self._position, len(self._pass)), range(self._position)):
            if self._pass[position] == layer:
                return position + 1
        return self._position

    def _turn(self) -> None:
        self._close_pass()
        self._expect()

    def _close_pass(self) -> None:
        if not self._heard:
            return
        finished: Pass = tuple(self._heard)
        if finished == self._pass:
            finished = self._pass  # the same object, so that tables and comparisons stay cheap
        number = len(self._passes)
        self._on_track = self._on_track and number < len(self._history) and self._history[number] == finished
        self._passes.append(finished)
        if self._total is not None and len(self._passes) > self._total:
            self._total = None  # there are more than was said
        self._heard = []

    def _expect(self) -> None:
        """Choose the pass to come and the one after it."""
        number = len(self._passes)
        learned = self._history[number : number + 2] if self._on_track else ()
        self._pass = learned[0] if learned else self._passes[-1] if self._passes else self._declared
        ends = len(learned) == 1 if self._total is None else number + 1 >= self._total
        self._following = () if ends else learned[-1] if len(learned) == 2 else self._pass
        if number == self._total:
            self._pass = ()
        self._position = 0
        self._table = self._windows(self._pass, self._following)
        self.window = self._table[0]

    def _windows(self, now: Pass, following: Pass) -> list[Pass]:
        known = self._tables.get((now, following))
        if known is None:
            sequence = now + following
            known = [self._window(sequence, position) for position in range(len(now) + 1)]
            if len(self._tables) > 64:  # a component that never repeats itself
                self._tables.clear()
            self._tables[now, following] = known
        return known

    def _window(self, sequence: Pass, position: int) -> Pass:
        found: dict[int, None] = {}
        for layer in sequence[position:]:
            if len(found) == self._size:
                break
            if layer in self._streamed:
                found[layer] = None
        return tuple(found)
