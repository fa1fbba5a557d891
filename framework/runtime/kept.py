"""One request and its artifacts: where it begins, what its stages leave, what is saved when it breaks off.

Imports torch. Without artifacts it begins at the start and leaves nothing.
"""

from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from functools import partial
from typing import Any

from framework.artifacts.tensor_tree import CannotKeep
from framework.compose.selectors import group_of
from framework.errors import FrameworkError
from framework.graph import Graph, Node
from framework.runtime.artifacts import Artifacts, made_of, runs_loop
from framework.runtime.context import StageContext
from framework.runtime.finite import NotFinite
from framework.runtime.loop_state import Loop, has_loop
from framework.runtime.resume import Begun
from framework.runtime.store import ComponentStore
from framework.spec import RequestSpec, RunSpec
from framework.values import Value


class Kept:
    """Asks `artifacts` where the request begins; `begun` is the answer."""

    def __init__(
        self, artifacts: Artifacts | None, spec: RunSpec, request: RequestSpec, index: int, store: ComponentStore
    ) -> None:
        self._artifacts, self._spec, self._index, self._store = artifacts, spec, index, store
        self._made_of = made_of(spec, request, store) if artifacts is not None else {}
        self.begun = artifacts.begin(index, store.device, self._made_of) if artifacts is not None else Begun()
        self._loop: tuple[str, Loop] | None = None

    @property
    def stops_early(self) -> bool:
        """Whether the request ends with a stage that the user named."""
        return self._artifacts is not None and self._artifacts.until is not None

    def nodes(self, graph: Graph) -> Iterator[tuple[int, Node]]:
        """Yield the stages that run, each with its position in the graph."""
        for position, node in enumerate(graph.nodes):
            if position >= self.begun.position:
                yield position, node
            if self._artifacts is not None and node.spec.name == self._artifacts.until:
                return

    def loop(self, ctx: StageContext, node: Node) -> AbstractContextManager[None]:
        """In this block the stage of `node` runs: the state of its loop is kept, or brought back."""
        artifacts, name = self._artifacts, node.spec.name
        state = self.begun.state if self.begun.stage == name else None
        if self._loop is not None and self._loop[0] == name:  # it broke off in this process
            state = self._loop[1].newest or state
        if artifacts is None or not runs_loop(node) or (state is None and not self._may_keep_steps(artifacts)):
            return nullcontext()
        components = self._store.components.items()
        loop = Loop(
            ctx,
            schedulers={part: component for part, component in components if has_loop(component)},
            looped=frozenset(part for part, _ in components if self._is_denoiser(part)),
            views=self._store.views,
            save=partial(artifacts.keep_step, name, self._index, self._made_of),
            every_steps=artifacts.every_steps,
            last_too=not artifacts.keeps(name),
            state=state,
        )
        self._loop = name, loop
        return loop.watched()

    def stage(self, name: str, values: Mapping[str, Value]) -> None:
        """A stage has written `values`: nobody goes back into its loop, whose state lies on the device."""
        self._loop = None
        if self._artifacts is not None:
            self._artifacts.keep_stage(name, self._index, self._made_of, values)

    @contextmanager
    def rescued(self, graph: Graph, values: Mapping[str, Value]) -> Iterator[None]:
        """In this block the request runs. Where it breaks off, `values` are kept as they are then."""
        try:
            yield
        except NotFinite:
            raise  # nobody wants to go on from there
        except BaseException:
            if self._artifacts is not None:
                with suppress(CannotKeep, FrameworkError):  # why the request broke off is what there is to tell
                    self._artifacts.rescue(self._index, graph, self._made_of, values)
            raise

    def finish(self, graph: Graph, values: Mapping[str, Value]) -> None:
        """The request is done, or has come to the stage that the user named: then later ones may go on from there."""
        if self._artifacts is None:
            return
        if self.stops_early:
            self._artifacts.rescue(self._index, graph, self._made_of, values)
        else:
            self._artifacts.finish_request(self._index)

    def _may_keep_steps(self, artifacts: Artifacts) -> bool:
        """A step cache has a state of its own, which is not ours to keep."""
        cached: Any = self._spec.numerics.step_cache
        return artifacts.keeps_steps() and cached in (None, "off")

    def _is_denoiser(self, name: str) -> bool:
        part = self._spec.pipeline.components.get(name)
        return group_of(name, part.group if part is not None else None) == "dit"
