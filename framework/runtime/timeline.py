"""The order in which a request uses its components, and which use comes next. No torch.

The first request goes by the declared order; later ones by what the last complete request really did, for a pipeline
called as a whole declares no order that could be relied on. A wrong guess costs a copy, never a wrong weight.
"""

from collections.abc import Sequence

from framework.spec import ComponentUse

UseKey = tuple[str, str | None]
Entry = tuple[str, ComponentUse]
"""Stage name and use."""


def key_of(use: ComponentUse) -> UseKey:
    """Return what makes two uses one: component and phase."""
    return use.component, use.phase


class Timeline:
    """Follows one request at a time through its uses."""

    def __init__(self) -> None:
        self._declared: tuple[Entry, ...] = ()
        self._learned: tuple[Entry, ...] = ()
        self._order: tuple[Entry, ...] = ()
        self._heard: list[Entry] = []
        self._position = -1

    @property
    def declared(self) -> tuple[Entry, ...]:
        return self._declared

    def start(self, declared: Sequence[Entry]) -> None:
        """A request begins; what was learned holds only for the same declaration."""
        if tuple(declared) != self._declared:
            self._declared, self._learned = tuple(declared), ()
        self._order = self._learned or self._declared
        self._heard = []
        self._position = -1

    def begin(self, stage: str, use: ComponentUse) -> None:
        """A use begins: move to the first later entry that is this use; stay where there is none."""
        self._heard.append((stage, use))
        later = range(self._position + 1, len(self._order))
        found = (i for i in later if self._order[i][0] == stage and key_of(self._order[i][1]) == key_of(use))
        self._position = next(found, self._position)

    def following(self) -> Entry | None:
        """Return the use that is expected next, or None."""
        index = self._position + 1
        return self._order[index] if index < len(self._order) else None

    def stop(self) -> None:
        """Nothing later will run: expect no more."""
        self._position = len(self._order)

    @property
    def heard_all(self) -> bool:
        """Whether every declared use has begun in this request."""
        return {key_of(use) for _, use in self._declared} <= {key_of(use) for _, use in self._heard}

    def finish(self, complete: bool) -> None:
        """The request has ended; only a complete one teaches."""
        if complete and self._heard:
            self._learned = tuple(self._heard)
        self.stop()
