"""When each component is needed: begin and end of request, stage and use, handed to the strategies. Imports torch.

A use is one interval in which a stage needs a component, named by (component, phase). Uses may overlap. One that starts
at stage entry lasts for its stage; one that starts at the call lasts from the first call (or `ctx.use`) until the stage
lets go or the next phase begins. Adjacent stages that declare the same use share one interval. Whatever happens,
`finish_request` brings every component back to the idle state of its mode.
"""

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial

import torch

from framework.errors import StageError
from framework.graph import Graph, Node
from framework.registry import STRATEGIES
from framework.runtime.events import EventBus, Note, UseFinished, UseStarted
from framework.runtime.store import ComponentStore
from framework.runtime.strategy import Strategy
from framework.spec import ComponentUse, Placement

RESIDENT = "resident"
UseKey = tuple[str, str | None]


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


def effective_placements(
    placements: Mapping[str, Placement], store: ComponentStore, events: EventBus
) -> dict[str, Placement]:
    """Return a placement for each managed component; on the CPU all are resident, and one line says so."""
    default = {name: Placement(component=name, group=None, mode=RESIDENT) for name in sorted(store.managed)}
    chosen = {name: placements.get(name, default[name]) for name in default}
    moved = [f"{name} ({placement.mode})" for name, placement in chosen.items() if placement.mode != RESIDENT]
    if store.device.type != "cpu" or not moved:
        return chosen
    events.emit(Note(f"on the CPU every component is resident; no effect for {', '.join(moved)}"))
    return default


class ResidencyManager:
    """Keeps the open uses of one request at a time and drives one strategy for each component."""

    def __init__(
        self,
        store: ComponentStore,
        placements: Mapping[str, Placement],
        events: EventBus,
        check: Callable[[], None] = lambda: None,
    ) -> None:
        self._store = store
        self._placements = dict(placements)
        self._events = events
        self._check = check
        self._strategies: dict[str, Strategy] = {}
        self._request = 0
        self._nodes: tuple[Node, ...] = ()
        self._node: Node | None = None
        self._next: Node | None = None
        self._timeline: list[tuple[str, ComponentUse]] = []
        self._position = -1
        self._open: dict[UseKey, OpenUse] = {}
        self._open_components: set[str] = set()
        self._armed: dict[str, ComponentUse] = {}
        self._prefetched: set[str] = set()
        self._seen: dict[str, ComponentUse] = {}
        self.current_component: str | None = None  # the one that is running now
        self.last_component: str | None = None  # the last one of this stage that ran

    # Request and stage

    def begin_request(self, graph: Graph, request: int) -> None:
        """Start listening to calls; `graph` gives the order of uses."""
        self._request = request
        self._nodes = graph.nodes
        self._timeline = list(graph.timeline())
        self._position = -1
        self._seen.clear()
        self._prefetched.clear()
        for hook in self._store.hooks.values():
            hook.on_call, hook.on_return = self.on_call, self.on_return

    def begin_stage(self, index: int) -> None:
        self._node = self._nodes[index]
        self._next = self._nodes[index + 1] if index + 1 < len(self._nodes) else None
        self.current_component = self.last_component = None
        for use in self._node.component_uses:
            if use.start_at_stage_entry:
                self._begin(use, None).held = True

    def end_stage(self) -> None:
        """Finish the stage's uses, but hand over those which the next stage declares too."""
        following = {_key(use) for use in self._next.component_uses} if self._next else set()
        self._armed.clear()
        for key, opened in reversed(list(self._open.items())):
            if key in following and self._next is not None:
                opened.stage, opened.depth, opened.held = self._next.spec.name, 0, False
            else:
                self._end(key)
        self._node = None

    def finish_request(self) -> None:
        """Bring every component to its idle state; the first error is raised after all have been tried."""
        for hook in self._store.hooks.values():
            hook.on_call = hook.on_return = None
        self._armed.clear()
        self._stop_prefetching()
        preferred = self._preferred()
        steps: list[Callable[[], None]] = [partial(self._end, key) for key in reversed(list(self._open))]
        steps += [partial(self._strategy(name).finish_request, name in preferred) for name in self._seen]
        errors: list[Exception] = []
        for step in steps:
            try:
                step()
            except Exception as error:  # every component gets its turn before the first error is raised
                errors.append(error)
        self._open.clear()
        self._open_components.clear()
        self._node = self._next = self.current_component = None
        if errors:
            raise errors[0]

    # Uses

    @contextmanager
    def use(self, use: ComponentUse, dtype: torch.dtype | None = None) -> Iterator[None]:
        """Hold `use` open for the block; nested blocks share it."""
        opened = self._begin(use, dtype)
        opened.depth += 1
        try:
            yield
        except BaseException:
            self._stop_prefetching()
            raise
        finally:
            opened.depth -= 1
            if opened.depth == 0 and not opened.held and self._open.get(_key(use)) is opened:
                self._end(_key(use))

    @contextmanager
    def uses_at_call(self) -> Iterator[None]:
        """Let the stage's call-started uses begin at their component's first call; all end with the block."""
        assert self._node is not None, "a use outside a stage"
        for use in self._node.component_uses:
            if not use.start_at_stage_entry:
                self._armed.setdefault(use.component, use)
        try:
            yield
        except BaseException:
            self._stop_prefetching()
            raise
        finally:
            for use in self._armed.values():
                opened = self._open.get(_key(use))
                if opened is not None and not opened.held and opened.depth == 0:
                    self._end(_key(use))
            self._armed.clear()

    def on_call(self, component: str) -> None:
        """A component is about to run: begin its use, or refuse a call that no stage declared."""
        self._check()
        self.current_component = self.last_component = component
        if component in self._open_components:
            return
        use = self._armed.get(component)
        if use is None:
            stage = self._node.spec.name if self._node else "?"
            raise StageError(f"stage '{stage}' calls component '{component}' outside a use it declared")
        self._end_other_phases(use)
        self._begin(use, None)

    def on_return(self, component: str) -> None:
        self.current_component = None

    def open_uses(self) -> tuple[UseKey, ...]:
        return tuple(self._open)

    # Inside

    def _begin(self, use: ComponentUse, dtype: torch.dtype | None) -> OpenUse:
        key = _key(use)
        wanted = dtype or _dtype(use.target_dtype)
        opened = self._open.get(key)
        if opened is not None:
            if wanted is not None and wanted != opened.dtype:
                _make_ready(opened.strategy, wanted)
                opened.dtype = wanted
            return opened
        self._check()
        for other in [other for other in self._open if other[0] == use.component]:
            self._end(other)
        assert self._node is not None, "a use outside a stage"
        started = time.perf_counter()
        strategy = self._strategy(use.component)
        self._seen[use.component] = use
        self._advance(self._node.spec.name, key)
        opened = OpenUse(use, self._node.spec.name, strategy, started, wanted)
        self._open[key] = opened
        _make_ready(strategy, wanted)
        self._open_components.add(use.component)
        seconds = time.perf_counter() - started
        self._events.emit(UseStarted(self._request, opened.stage, use.component, use.phase, seconds))
        self._prefetch_next()
        return opened

    def _end(self, key: UseKey) -> None:
        opened = self._open.pop(key)
        self._open_components.discard(key[0])
        opened.strategy.finish_use()
        self._prefetched.discard(key[0])
        seconds = time.perf_counter() - opened.started
        self._events.emit(UseFinished(self._request, opened.stage, key[0], key[1], seconds))
        self._prefetch_next()

    def _end_other_phases(self, use: ComponentUse) -> None:
        """Phases of one stage follow each other: the first call of one ends those before it, but not its own parts."""
        if use.phase is None:
            return
        for other in self._armed.values():
            if other.phase not in (None, use.phase) and _key(other) in self._open:
                self._end(_key(other))

    def _advance(self, stage: str, key: UseKey) -> None:
        """Move to the first later entry of the timeline that is this use; stay where there is none."""
        later = range(self._position + 1, len(self._timeline))
        found = (i for i in later if self._timeline[i][0] == stage and _key(self._timeline[i][1]) == key)
        self._position = next(found, self._position)

    def _prefetch_next(self) -> None:
        """Offer the next memory-intensive use to its strategy."""
        for _, use in self._timeline[self._position + 1 :]:
            if not use.memory_intensive:
                continue
            known = use.component in self._prefetched or use.component in self._open_components
            if not known and use.allow_prefetch:
                started = self._strategy(use.component).prefetch(beside_active=bool(self._open))
                if started:
                    self._prefetched.add(use.component)
                    self._seen.setdefault(use.component, use)
            return

    def _strategy(self, component: str) -> Strategy:
        if component not in self._strategies:
            placement = self._placements[component]
            built: Strategy = STRATEGIES.get(placement.mode)(
                component, self._store.module(component), placement, self._store.device
            )
            self._strategies[component] = built
        return self._strategies[component]

    def _preferred(self) -> set[str]:
        """Components to be ready early in the next request: the flagged ones, else those of the first use."""
        uses = [*self._seen.values(), *(use for _, use in self._timeline)]
        flagged = {use.component for use in uses if use.preferred_ready_after_request}
        return flagged or {self._timeline[0][1].component} if self._timeline else flagged

    def _stop_prefetching(self) -> None:
        """Nothing later will run: treat the timeline as used up."""
        self._position = len(self._timeline)


def _key(use: ComponentUse) -> UseKey:
    return use.component, use.phase


def _dtype(name: str | None) -> torch.dtype | None:
    found = getattr(torch, name) if name else None
    assert found is None or isinstance(found, torch.dtype), name
    return found


def _make_ready(strategy: Strategy, dtype: torch.dtype | None) -> None:
    strategy.prepare(dtype)
    strategy.wait()
