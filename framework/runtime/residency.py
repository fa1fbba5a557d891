"""When each component is needed: begin and end of request, stage and use, handed to the strategies. Imports torch.

A use is one interval in which a stage needs a component, named by (component, phase). Uses may overlap. One that starts
at stage entry lasts for its stage; one that starts at the call lasts from the first call (or `ctx.use`) until the stage
lets go or the next phase begins. Adjacent stages that declare the same use share one interval. Whatever happens,
`finish_request` brings every component back to the idle state of its mode, and an audit makes sure of it.

The next use is prefetched between uses only, because inside one nothing may be allocated that its plan does not know;
a component that shares the ring of the one in use brings no memory of its own, so its head comes during the use.
"""

import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from functools import partial

import torch
from torch import nn

from framework.errors import StageError
from framework.graph import Graph, Node
from framework.memory.casting import main_dtype
from framework.runtime.after_warmup import preferred
from framework.runtime.calls import CallListener, Calls
from framework.runtime.events import EventBus, Note, UseFinished, UseStarted
from framework.runtime.hook import ManagedHook
from framework.runtime.memory_sample import MemorySampler
from framework.runtime.placed import RESIDENT, Placed, outside_inference
from framework.runtime.recovery import Recovery
from framework.runtime.room import OpenUse, Room
from framework.runtime.spilling import SpillWatch
from framework.runtime.store import ComponentStore
from framework.runtime.strategy import Strategy
from framework.runtime.timeline import Timeline, UseKey, key_of
from framework.spec import ComponentUse


class ResidencyManager:
    """Keeps the open uses of one request at a time and drives the strategy of each component."""

    def __init__(
        self,
        store: ComponentStore,
        placed: Placed,
        events: EventBus,
        check: Callable[[], None] = lambda: None,
        recovery: Recovery | None = None,
    ) -> None:
        self._store = store
        self._placed = placed
        self._events = events
        self._check = check
        self._step: int | None = None
        self._platform = placed.resources.platform
        self._sampler, self._spill = MemorySampler(placed), SpillWatch(placed, events)
        self._request = 0
        self._warmup = False
        self._nodes: tuple[Node, ...] = ()
        self._node: Node | None = None
        self._next: Node | None = None
        self._num_ended = 0
        self._timeline = Timeline()
        self._open: dict[UseKey, OpenUse] = {}
        self._room = Room(placed, recovery, self._open, self._strategy, self._let_go)
        self.account = self._room.account  # what lies on the device, beside an error of memory
        self._calls = Calls(recovery, store.module, self._room, self._where)
        self._open_components: set[str] = set()
        self._armed: dict[str, ComponentUse] = {}
        self._prefetched: dict[str, str] = {}  # component -> stage that it was fetched for
        self._seen: dict[str, ComponentUse] = {}
        self._ready: dict[str, ComponentUse] = {}  # what a warm-up has left ready for the request after it
        self.current_component: str | None = None  # the one that is running now
        self.last_component: str | None = None  # the last one of this stage that ran

    # Request and stage

    def begin_request(self, graph: Graph, request: int, warmup: bool = False) -> None:
        """Start listening to calls; `graph` gives the declared order of uses."""
        self._request, self._warmup = request, warmup
        self._nodes = graph.nodes
        self._num_ended = 0
        self._timeline.start(tuple(graph.timeline()))
        self._seen.clear()
        self._prefetched.clear()
        for hook in self._store.hooks.values():
            self._listen(hook)

    def _listen(self, hook: ManagedHook) -> None:
        hook.on_call, hook.on_return, hook.on_cast = self.on_call, self.on_return, self.on_cast
        hook.around = self._calls.around

    def begin_stage(self, index: int) -> None:
        self._node = self._nodes[index]
        self._next = self._nodes[index + 1] if index + 1 < len(self._nodes) else None
        self.current_component = self.last_component = self._step = None
        self._placed.begin_stage()
        self._platform.mark(stage=self._node.spec.name, step=None)
        for use in self._node.component_uses:
            if use.start_at_stage_entry:
                self._begin(use, None).held = True

    def mark_step(self, step: int) -> None:
        """Say which step of the stage's loop runs now, for the log of moves."""
        self._step = step
        self._platform.mark(step=step)

    def finish_step(self, step: int, num_steps: int, num_before_switch: int | None, skipped: int = 0) -> None:
        """Step `step` of `num_steps`, counted from 1, is over; the second phase begins after `num_before_switch`.

        The first `skipped` steps were made by another process. Told when the last step of a phase comes, the streamer
        makes room for the head of the next phase's component, in the first request too: it is in the order of its
        declared layers then.
        """
        first, last = (0, num_steps)
        if num_before_switch is not None:
            first, last = (0, num_before_switch) if step <= num_before_switch else (num_before_switch, num_steps)
        first = max(first, skipped)
        for opened in self._open.values():
            self._placed.expect_steps(opened.use.component, step - first, last - first)
        self.mark_step(step + 1)
        self._sample()
        self._relieve_host()

    def end_stage(self) -> None:
        """Finish the stage's uses, but hand over those which the next stage declares too; then audit."""
        assert self._node is not None, "a stage that did not begin"
        following = {key_of(use) for use in self._next.component_uses} if self._next else set()
        self._armed.clear()
        for key, opened in reversed(list(self._open.items())):
            if key in following and self._next is not None:
                opened.stage, opened.depth, opened.held = self._next.spec.name, 0, False
            else:
                self._end(key)
        stage = self._node.spec.name
        self._drop_prefetched([name for name, wanted in self._prefetched.items() if wanted == stage])
        self._node = None
        self._num_ended += 1
        self._placed.audit(f"after stage '{stage}'")
        self._relieve_host()

    def _relieve_host(self) -> None:
        """Page-locked memory is the first that the host gets back when it runs short."""
        said = self._placed.relieve_host(self._open_components | self._prefetched.keys())
        if said is not None:
            self._events.emit(Note(said))

    def finish_request(self) -> None:
        """Bring every component to its idle state; the first error is raised after all have been tried."""
        for hook in self._store.hooks.values():
            hook.on_call = hook.on_return = hook.on_cast = hook.around = None
        self._armed.clear()
        complete = self._num_ended == len(self._nodes)
        self._timeline.finish(complete and (self._timeline.heard_all or not self._warmup))
        steps: list[Callable[[], None]] = [partial(self._end, key) for key in reversed(list(self._open))]
        for name, use in self._ready.items():
            self._seen.setdefault(name, use)  # left ready and not asked for: it is idle again after this request
        ready = self._ready_after_warmup()
        self._ready = {name: self._seen[name] for name in ready}
        steps += [partial(self._finish_component, name, name in ready) for name in self._seen]
        if self._warmup:
            steps += [partial(self._placed.forget_length, name) for name in self._seen]
        steps.append(partial(self._placed.audit, f"after request {self._request + 1}"))
        errors: list[Exception] = []
        for step in steps:
            try:
                step()
            except Exception as error:  # every component gets its turn before the first error is raised
                errors.append(error)
        self._open.clear()
        self._open_components.clear()
        self._prefetched.clear()
        self._node = self._next = self.current_component = None
        self._platform.mark(stage=None, step=None)
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
            self._timeline.stop()
            raise
        finally:
            opened.depth -= 1
            if opened.depth == 0 and not opened.held and self._open.get(key_of(use)) is opened:
                self._end(key_of(use))

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
            self._timeline.stop()
            raise
        finally:
            for use in self._armed.values():
                opened = self._open.get(key_of(use))
                if opened is not None and not opened.held and opened.depth == 0:
                    self._end(key_of(use))
            self._armed.clear()

    def on_call(self, component: str) -> None:
        """A component is about to run: begin its use, or refuse a call that no stage declared."""
        self._check()
        self.current_component = self.last_component = component
        if component not in self._open_components:
            self._begin_armed(component, None)

    def on_cast(self, component: str, dtype: torch.dtype) -> None:
        """A pipeline wants a component in `dtype`: its use begins, or goes on, in that dtype and ends in its own."""
        use = next((opened.use for opened in self._open.values() if opened.use.component == component), None)
        if use is not None:
            self._begin(use, dtype)
        elif dtype != main_dtype(self._store.module(component)):
            self._begin_armed(component, dtype)

    def on_return(self, component: str) -> None:
        self.current_component = None

    def open_uses(self) -> tuple[UseKey, ...]:
        return tuple(self._open)

    def components_in_use(self) -> frozenset[str]:
        return frozenset(component for component, _ in self._open)

    def listening(self, listener: CallListener) -> AbstractContextManager[None]:
        """In this block `listener` hears of the calls of components, and may answer them."""
        return self._calls.heard_by(listener)

    # Components that come late or change

    def supply(self, component: str, module: nn.Module) -> None:
        """Give `component` a module it did not have, or another instance: it gets the slot's mode.

        The old instance is given up first, hooks, copies and bookings; uses that are open go on with the new one.
        """
        self.forget_component(component)
        self._store.replace(component, module)
        self._listen(self._store.hooks[component])
        for opened in self._open.values():
            if opened.use.component == component:
                opened.strategy = self._strategy(component)
                self._room.make_ready(opened, opened.dtype)

    def forget_component(self, component: str) -> None:
        """Give up what is known of a component's instance; a use of it that is open is finished first."""
        with outside_inference():
            for opened in self._open.values():
                if opened.use.component == component:
                    opened.strategy.finish_use()
        self._prefetched.pop(component, None)
        self._seen.pop(component, None)
        self._ready.pop(component, None)
        self._placed.forget(component)

    # Inside

    def _begin_armed(self, component: str, dtype: torch.dtype | None) -> None:
        use = self._armed.get(component)
        if use is None:
            stage = self._node.spec.name if self._node else "?"
            raise StageError(f"stage '{stage}' calls component '{component}' outside a use it declared")
        self._end_other_phases(use)
        self._begin(use, dtype)

    def _begin(self, use: ComponentUse, dtype: torch.dtype | None) -> OpenUse:
        key = key_of(use)
        wanted = dtype or _dtype(use.target_dtype)
        opened = self._open.get(key)
        if opened is not None:
            if wanted is not None and wanted != opened.dtype:
                self._room.make_ready(opened, wanted)
                opened.dtype = wanted
            return opened
        self._check()
        for other in [other for other in self._open if other[0] == use.component]:
            self._end(other, offer=False)
        assert self._node is not None, "a use outside a stage"
        started = time.perf_counter()
        strategy = self._strategy(use.component)
        self._seen[use.component] = use
        self._timeline.begin(self._node.spec.name, use)
        self._drop_prefetched([name for name in self._prefetched if name != use.component])
        opened = OpenUse(use, self._node.spec.name, strategy, started, wanted)
        self._open[key] = opened
        self._room.make_ready(opened, wanted)
        self._open_components.add(use.component)
        self._prefetched.pop(use.component, None)
        if self._events.heard:
            seconds = time.perf_counter() - started
            self._events.emit(UseStarted(self._request, opened.stage, use.component, use.phase, seconds))
        self._sample()
        self._offer_next()
        return opened

    def _end(self, key: UseKey, offer: bool = True) -> None:
        opened = self._open.pop(key)
        self._open_components.discard(key[0])
        if not self._keeps(opened.use):
            with outside_inference():
                opened.strategy.finish_use()
            if opened.use.memory_intensive and self._placed.mode(key[0]) != RESIDENT:
                self._platform.release_cache()  # the next use gets this memory in other sizes
        if self._events.heard:
            seconds = time.perf_counter() - opened.started
            self._events.emit(UseFinished(self._request, opened.stage, key[0], key[1], seconds))
        self._sample()
        if offer:
            self._offer_next()

    def _sample(self) -> None:
        if self._events.heard:
            self._events.emit(self._sampler.sample(self._request, self._open_components))
            self._spill.look()

    def _end_other_phases(self, use: ComponentUse) -> None:
        """Phases of one stage follow each other: the first call of one ends those before it, but not its own parts."""
        if use.phase is None:
            return
        for other in self._armed.values():
            if other.phase not in (None, use.phase) and key_of(other) in self._open:
                self._end(key_of(other), offer=False)  # what comes next is this very use

    def _offer_next(self) -> None:
        """Offer the next use to its strategy: between uses, or where it shares the ring of the one in use."""
        following = self._timeline.following()
        if following is None:
            return
        stage, use = following
        name = use.component
        known = name in self._prefetched or name in self._open_components
        if known or not use.allow_prefetch or name not in self._store.managed:
            return
        if all(self._placed.share_ring(name, other) for other in self._open_components):
            with outside_inference():
                started = self._strategy(name).prefetch(beside_active=bool(self._open))
            if started:
                self._prefetched[name] = stage
                self._seen.setdefault(name, use)

    def _let_go(self) -> None:
        self._drop_prefetched(list(self._prefetched))

    def _drop_prefetched(self, components: list[str]) -> None:
        """What was fetched ahead and is passed over goes again."""
        for name in components:
            del self._prefetched[name]
            with outside_inference():
                self._strategy(name).finish_use()

    def _finish_component(self, component: str, ready: bool) -> None:
        if not (ready and self._keeps(self._seen[component])):
            with outside_inference():
                self._strategy(component).finish_request(ready)

    def _strategy(self, component: str) -> Strategy:
        return self._placed.strategy(component, self._store.module(component))

    def make_room(self) -> bool:
        """Give something up for what a stage does between calls; it broke off, and begins again where this is True."""
        uses = self._node.component_uses if self._node is not None else ()
        return self._room.make_between({use.component for use in uses}, self._end_all)

    def _end_all(self) -> None:
        for key in reversed(list(self._open)):
            self._end(key, offer=False)
        self._armed.clear()

    def _where(self) -> str:
        step = f" at step {self._step}" if self._step is not None else ""
        return f"{step} of stage '{self._node.spec.name}'" if self._node is not None else step

    def _keeps(self, use: ComponentUse) -> bool:
        """After a warm-up some components stay for the first real request."""
        return self._warmup and use.keep_ready_after_warmup

    def _ready_after_warmup(self) -> frozenset[str]:
        """Components that are kept or preferred, as far as that can do the first real request no harm."""
        if not self._warmup:
            return frozenset()
        flagged = preferred(self._seen.values(), self._timeline.declared, self._store.managed, self._placed.mode)
        wanted = [name for name, use in self._seen.items() if name in flagged or self._keeps(use)]
        return self._placed.fitting_beside_a_request(wanted) if wanted else frozenset()


def _dtype(name: str | None) -> torch.dtype | None:
    found = getattr(torch, name) if name else None
    assert found is None or isinstance(found, torch.dtype), name
    return found
