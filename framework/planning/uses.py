"""The life of a request in moments: which components are in use together, which is fetched ahead. No torch.

It follows `framework.runtime.residency` and depends on stages, uses and calls alone, not on where anything lives.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from framework.planning.facts import CallCount, RunWork, StageWork
from framework.spec import ComponentUse

UseKey = tuple[str, str | None]


@dataclass(frozen=True, slots=True)
class Moment:
    """A stretch with the same weights on the device. `seen` have been in use by then, this moment's own included.

    `active` counts what has been fetched ahead of its use. `activation_bytes` and `live_bytes` are those of a call,
    `kept_bytes` what is alive where no component runs. `changed` are the components that have begun, ended or been
    fetched since the moment before it.
    """

    stage: str
    active: frozenset[str]
    seen: frozenset[str]
    activation_bytes: int = 0
    live_bytes: int = 0
    kept_bytes: int = 0
    changed: frozenset[str] = field(default=frozenset(), compare=False, repr=False)

    @property
    def extra_bytes(self) -> int:
        """Device bytes that are not weights."""
        return self.activation_bytes + self.live_bytes + self.kept_bytes


@dataclass(frozen=True, slots=True)
class Span:
    """One use of a component from its begin to its end: the calls in it by stage.

    `copying` are the stages whose own code copies something to the device in each of its steps.
    """

    component: str
    parts: tuple[tuple[str, tuple[CallCount, ...]], ...]
    copying: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class Life:
    """All moments and uses of one request, in order."""

    moments: tuple[Moment, ...]
    spans: tuple[Span, ...]


def live_through(work: RunWork, uses: Mapping[str, tuple[ComponentUse, ...]]) -> Life:
    """Follow a request through its stages."""
    walk = _Walk(work, uses)
    for number in range(len(work.stages)):
        walk.stage(number)
    return Life(tuple(walk.moments), tuple(walk.spans()))


def ring_groups(
    uses: Mapping[str, tuple[ComponentUse, ...]], groups: Mapping[str, str | None]
) -> tuple[tuple[str, ...], ...]:
    """Return the sets of components that share one ring where their layers are streamed: a stage's experts."""
    found: list[tuple[str, ...]] = []
    for declared in uses.values():
        together = [set(names) for names in _used_together(declared)]
        by_group: dict[str, list[str]] = {}
        for use in declared:
            group = groups.get(use.component)
            if group is not None:
                by_group.setdefault(group, []).append(use.component)
        for names in by_group.values():
            turns = tuple(dict.fromkeys(names))
            if len(turns) > 1 and not any(len(set(turns) & at_once) > 1 for at_once in together):
                found.append(turns)
    return tuple(found)


def _used_together(uses: Sequence[ComponentUse]) -> Iterator[tuple[str, ...]]:
    always = {use.component: use for use in uses if use.start_at_stage_entry or use.phase is None}
    phases = dict.fromkeys(use.phase for use in uses if use.component not in always)
    for phase in phases or (None,):
        own = [use.component for use in uses if use.phase == phase and use.component not in always]
        yield tuple(dict.fromkeys((*always, *own)))


class _Walk:
    """Where a request stands: open uses, what has been seen, and the calls of each use so far."""

    def __init__(self, work: RunWork, uses: Mapping[str, tuple[ComponentUse, ...]]) -> None:
        self.moments: list[Moment] = []
        self._work = work
        self._uses = [uses.get(stage.stage, ()) for stage in work.stages]
        self._order = [(number, use) for number, declared in enumerate(self._uses) for use in declared]
        self._position = -1
        self._first = [{use.component: use for use in reversed(declared)} for declared in self._uses]
        self._open: dict[UseKey, list[tuple[str, list[CallCount]]]] = {}
        self._keys: dict[str, UseKey] = {}  # of what is open, by component
        self._active: frozenset[str] | None = None  # what is open or fetched ahead, until that changes
        self._changed: set[str] = set()
        self._ahead: tuple[int, str] | None = None  # what has been fetched early, and for which stage
        self._seen: frozenset[str] = frozenset()
        self._done: list[tuple[str, list[tuple[str, list[CallCount]]]]] = []

    def spans(self) -> Iterator[Span]:
        copying = frozenset(stage.stage for stage in self._work.stages if _copies_in_steps(stage))
        for component, parts in self._done:
            called = tuple((stage, tuple(calls)) for stage, calls in parts)
            yield Span(component, called, copying)

    def stage(self, number: int) -> None:
        work = self._work.stages[number]
        for parts in self._open.values():
            parts.append((work.stage, []))
        for use in self._uses[number]:
            if use.start_at_stage_entry:
                self._begin(number, use)
        self._note(work, kept_bytes=_either(work.entry_bytes, work.extra_bytes))
        for counted in work.calls:
            self._call(number, work, counted)
            if kept_bytes := _either(work.later_bytes, work.extra_bytes):
                self._note(work, kept_bytes=kept_bytes)
        self._end_stage(number, work)

    def _call(self, number: int, work: StageWork, counted: CallCount) -> None:
        component = counted.call.component
        key = self._keys.get(component)
        if key is None:
            undeclared = ComponentUse(component=component, start_at_stage_entry=False)
            use = self._first[number].get(component, undeclared)
            if use.phase is not None:
                others = {(other.component, other.phase) for other in self._uses[number] if other.phase is not None}
                for other in [other for other in self._open if other in others and other[1] != use.phase]:
                    self._close(other)
            key = self._begin(number, use)
        _add(self._open[key][-1][1], counted)
        self._note(work, counted.call.activation_bytes, counted.call.live_bytes)

    def _begin(self, number: int, use: ComponentUse) -> UseKey:
        key = (use.component, use.phase)
        if key not in self._open:
            if use.component in self._keys:
                self._close(self._keys[use.component])
            parts: list[tuple[str, list[CallCount]]] = [(self._work.stages[number].stage, [])]
            self._open[key], self._keys[use.component] = parts, key
            self._change(use.component)
            self._done.append((use.component, parts))
            self._seen |= {use.component}
            self._fetch(None)  # it is this one, or it makes way
            later = range(self._position + 1, len(self._order))
            found = (i for i in later if self._order[i][0] == number and self._order[i][1] == use)
            self._position = next(found, self._position)
        return key

    def _end_stage(self, number: int, work: StageWork) -> None:
        following = self._uses[number + 1] if number + 1 < len(self._uses) else ()
        kept = {(use.component, use.phase) for use in following}
        ended = [key for key in self._open if key not in kept]
        for key in ended:
            self._close(key)
        coming = self._position + 1
        if ended and not self._open and coming < len(self._order):
            wanted, use = self._order[coming]
            if use.allow_prefetch:
                self._fetch((wanted, use.component))
                self._seen |= {use.component}
                self._note(work, kept_bytes=_either(work.end_bytes, work.extra_bytes))
        if self._ahead is not None and self._ahead[0] == number:
            self._fetch(None)  # it was passed over

    def _close(self, key: UseKey) -> None:
        del self._open[key], self._keys[key[0]]
        self._change(key[0])

    def _fetch(self, ahead: tuple[int, str] | None) -> None:
        for one in (self._ahead, ahead):
            if one is not None:
                self._change(one[1])
        self._ahead = ahead

    def _change(self, component: str) -> None:
        self._changed.add(component)
        self._active = None

    def _note(self, work: StageWork, activation_bytes: int = 0, live_bytes: int = 0, kept_bytes: int = 0) -> None:
        if self._active is None:
            self._active = frozenset(self._keys) | ({self._ahead[1]} if self._ahead is not None else set())
        amounts = (activation_bytes, live_bytes, kept_bytes)
        moment = Moment(work.stage, self._active, self._seen, *amounts, frozenset(self._changed))
        if moment not in self.moments[-8:]:  # components that take turns, step by step
            self.moments.append(moment)
            self._changed.clear()


def _copies_in_steps(stage: StageWork) -> bool:
    """Whether there is a copy for each step, beside those before the loop."""
    steps = max((counted.steps[1] for counted in stage.calls if counted.steps is not None), default=0)
    return 0 < steps <= stage.outside.h2d_copies


def _either(known: int | None, most: int) -> int:
    return most if known is None else known


def _add(calls: list[CallCount], counted: CallCount) -> None:
    """Add to the calls of a use; calls alike are one entry, though others were called in between."""
    last = calls[-1] if calls else None
    if last is None or last.call != counted.call:
        calls.append(counted)
        return
    both = (last.steps, counted.steps)
    steps = (both[0][0], both[1][1]) if both[0] is not None and both[1] is not None else None
    calls[-1] = CallCount(call=last.call, count=last.count + counted.count, steps=steps)
