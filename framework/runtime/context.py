"""What a stage sees of the engine while it runs. Imports torch."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import Any, Protocol

import torch
from torch import Tensor, nn

from framework.errors import StageError, did_you_mean
from framework.graph import Node
from framework.runtime.calls import CallListener
from framework.runtime.events import EventBus, Note, StepDone
from framework.runtime.family import Family
from framework.runtime.finite import FiniteWatch, NotFinite
from framework.runtime.phases import has_phases, steps_before_switch
from framework.runtime.prompt_cache import PromptCache
from framework.runtime.residency import ResidencyManager
from framework.runtime.store import ComponentStore
from framework.spec import EMPTY, ComponentUse, RequestSpec
from framework.values import Frames, Value

INSIDE = " (component "


class Writer(Protocol):
    """Takes finished pictures; whoever runs the request gives one."""

    def save(self, frames: Frames, request_index: int) -> None:
        """Write the frames of one request. Raises `OutputError`."""


class StageContext:
    """One stage of one request. Components are reached by `use` and `uses_at_call` only.

    `request` has its seeds; `values` maps the stage's own input names to what earlier stages wrote, None for an
    optional input that nobody writes; `arguments` are the pipeline's `args`.
    """

    def __init__(
        self,
        *,
        node: Node,
        request: RequestSpec,
        request_index: int,
        values: Mapping[str, Value],
        store: ComponentStore,
        family: Family | None,
        residency: ResidencyManager,
        events: EventBus,
        check: Callable[[], None],
        prompt_cache: PromptCache | None,
        writer: Writer | None,
        arguments: Mapping[str, Any] = EMPTY,
    ) -> None:
        self.request = request
        self.request_index = request_index
        self.values = values
        self.prompt_cache = prompt_cache
        self.writer = writer
        self.arguments = arguments
        self.watch = FiniteWatch()
        self.current_step: tuple[int, int] | None = None
        self.quiet = False  # steps that were done before are passed again, and nobody is told of them
        self.live_generators: list[list[torch.Generator]] = []
        self._skipped_steps = 0
        self._before_switch: int | None = None
        self._node = node
        self._store = store
        self._family = family
        self._residency = residency
        self._events = events
        self._check = check

    @property
    def stage(self) -> str:
        return self._node.spec.name

    @property
    def device(self) -> torch.device:
        """Where components compute."""
        return self._store.device

    @property
    def family(self) -> Family:
        """The pipeline's family. Raises `StageError` for a pipeline that names none."""
        if self._family is None:
            raise StageError(f"stage '{self.stage}' needs a pipeline family, and the pipeline names none")
        return self._family

    @contextmanager
    def use(self, component: str, phase: str | None = None, dtype: torch.dtype | None = None) -> Iterator[nn.Module]:
        """Make a declared component ready for the block and give it. Raises `StageError` for an undeclared one."""
        with self._residency.use(self._declared(component, phase), dtype):
            yield self._store.module(component)

    def supply(self, component: str, module: nn.Module) -> None:
        """Give the module of a declared component that the checkpoint leaves out, or another instance of one.

        It gets the placement of its name. Raises `StageError` for an undeclared one.
        """
        if all(use.component != component for use in self._node.component_uses):
            raise self._undeclared(component)
        self._residency.supply(component, module)

    @contextmanager
    def uses_at_call(self) -> Iterator[None]:
        """In this block the stage's call-started uses begin by themselves, at the first call of each component."""
        with self._residency.uses_at_call():
            yield

    def listening(self, listener: CallListener) -> AbstractContextManager[None]:
        """In this block `listener` hears of the calls of components, and may answer them."""
        return self._residency.listening(listener)

    def pipeline_view(self, cls: Any = None, without: Sequence[str] = ()) -> Any:
        """Return a diffusers pipeline over the store's components; `without` are None in it."""
        return self._store.pipeline_view(cls, frozenset(without))

    def generators(self, states: Sequence[Tensor] = ()) -> list[torch.Generator]:
        """Return one seeded generator for each output, or ones that go on from `states`."""
        assert self.request.seeds is not None, "seeds are drawn before the first stage"
        generators = [torch.Generator(self.request.generator_device).manual_seed(seed) for seed in self.request.seeds]
        assert not states or len(states) == len(generators), "one state for each output"
        for generator, state in zip(generators, states, strict=False):
            generator.set_state(state)
        self.live_generators.append(generators)
        return generators

    def start_over(self) -> None:
        """The stage broke off and runs again: nothing of the first try counts."""
        self.watch = FiniteWatch()
        self.current_step, self.quiet = None, False
        self._skipped_steps, self._before_switch = 0, None
        self.live_generators.clear()

    def identity(self, *components: str) -> tuple[str, ...]:
        """Return what tells these components from others, for cache keys."""
        return self._store.identity(*components)

    def expect_steps(self, num_steps: int) -> None:
        """Say that a loop of `num_steps` begins, so that a failure in its first step can be named."""
        self.current_step = (0, num_steps)
        self._residency.mark_step(1)

    def step(self, step: int, num_steps: int, values: Any = None) -> None:
        """Report the end of a step, counted from 1, and stop here if the user asked or `values` hold no numbers."""
        before_switch = self._num_before_switch(step)
        if self.quiet:
            self._skipped_steps = step
            self._residency.mark_step(step + 1)
            self.current_step = (step, num_steps)
            self._check()
            return
        self._residency.finish_step(step, num_steps, before_switch, self._skipped_steps)
        if self._events.heard:
            self._events.emit(StepDone(self.request_index, self.stage, step, num_steps, values))
        bad = self.watch.add(self._in_component(f"at step {step} of {num_steps}"), values)
        if bad is not None:
            raise self.non_finite(bad)
        self.current_step = (step, num_steps)  # from here on a failure is one of the next step
        self._check()

    def _num_before_switch(self, step: int) -> int | None:
        if step == 1 and has_phases(self._node.component_uses):
            self._before_switch = steps_before_switch(self._store.options, self._store.components.get("scheduler"))
        return self._before_switch

    @contextmanager
    def watch_outputs(self, module: nn.Module | None, name: str) -> Iterator[None]:
        """Look for values that are no numbers in what `module` returns, before anything clamps them."""
        if module is None:
            yield
            return

        def look(_module: nn.Module, _inputs: Any, output: Any) -> None:
            bad = self.watch.add(self._in_component(f"in {name}"), output)
            if bad is not None:
                raise self.non_finite(bad)

        handle = module.register_forward_hook(look)
        try:
            yield
        finally:
            handle.remove()

    def note(self, text: str) -> None:
        """Tell the user one line."""
        self._events.emit(Note(text))

    def non_finite(self, where: str) -> NotFinite:
        """Return the error for a stage that computed NaN or infinity, first seen at `where`."""
        where = where if INSIDE in where else self._in_component(where)
        return NotFinite(f"stage '{self.stage}' computed values that are not finite (NaN or infinity), first {where}")

    def _in_component(self, where: str) -> str:
        """Say who computed it, now: a flag may be read when the stage ends, after the calls of other components."""
        component = self._residency.last_component
        return f"{where}{INSIDE}'{component}')" if component else where

    def _declared(self, component: str, phase: str | None) -> ComponentUse:
        uses = [use for use in self._node.component_uses if use.component == component]
        if not uses:
            raise self._undeclared(component)
        matching = [use for use in uses if use.phase == phase] or (uses if phase is None and len(uses) == 1 else [])
        if not matching:
            known = ", ".join(str(use.phase) for use in uses)
            raise StageError(f"stage '{self.stage}' declares component '{component}' in phase {known}, not {phase}")
        if component not in self._store.managed:
            raise StageError(f"stage '{self.stage}' uses component '{component}', which this checkpoint leaves out")
        return matching[0]

    def _undeclared(self, component: str) -> StageError:
        names = sorted({use.component for use in self._node.component_uses})
        hint = did_you_mean(component, names) or "it declares no component"
        return StageError(f"stage '{self.stage}' uses component '{component}' without declaring it; {hint}")
