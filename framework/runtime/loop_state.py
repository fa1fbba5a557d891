"""The state of a stage's loop: kept every so many steps, and brought back by a fast-forward. Imports torch.

The loop stays the pipeline's own. We stand at the scheduler's `step`, after which the whole state is the sample, the
scheduler and the generators, and at the calls of the denoisers. To go on after step k, the pipeline runs its call
again; until step k its denoisers are answered with zeros of the right shape and its scheduler with a sample that counts
for nothing; at step k scheduler, generators and sample are put back.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import Any

from framework.artifacts.tensor_tree import CannotKeep
from framework.errors import StageError
from framework.runtime.answers import CallShapes, fresh
from framework.runtime.context import StageContext
from framework.runtime.finite import NotFinite
from framework.runtime.scheduler_seam import around_method

OURS = ("step", "set_timesteps")
NO_STATE = ("_internal_dict", *OURS)  # attributes of a scheduler that its config or we have put there

Save = Callable[[int, Mapping[str, Any]], None]
"""Gets the number of the step and the state after it; raises `CannotKeep`."""


class Loop:
    """Watches the loop of one stage. `looped` are the components that run in it, `views` the pipelines they serve.

    `save` is called after every `every_steps` steps (None: never), but not after the last one where `last_too` is
    False, and for the newest step when the stage fails. `state` is what an earlier loop has saved, None to start from
    the beginning.
    """

    def __init__(
        self,
        ctx: StageContext,
        schedulers: Mapping[str, Any],
        looped: frozenset[str],
        views: Callable[[], Sequence[Any]],
        save: Save,
        every_steps: int | None = None,
        last_too: bool = True,
        state: Mapping[str, Any] | None = None,
    ) -> None:
        self._ctx, self._schedulers, self._looped, self._views = ctx, schedulers, looped, views
        self._save, self._every_steps, self._last_too = save, every_steps, last_too
        self._state = state
        self._shapes = CallShapes(state["calls"] if state is not None else {})
        self._num_steps_done = 0
        self._num_saved = 0 if state is None else state["step"]
        self.newest = state  # after the last whole step
        self._unkept = ""
        ctx.quiet = state is not None

    @contextmanager
    def watched(self) -> Iterator[None]:
        """In this block the stage runs. Raises `StageError` for a loop that ends before it was brought back."""
        with ExitStack() as stack:
            for name, scheduler in self._schedulers.items():
                stack.enter_context(around_method(scheduler, "step", partial(self._step, name, scheduler)))
                stack.enter_context(around_method(scheduler, "set_timesteps", self._set_timesteps))
            stack.enter_context(self._ctx.listening(self))
            try:
                yield
            except NotFinite:
                raise  # nobody wants to go on from there
            except BaseException:
                self._rescue()
                raise
        if self._state is not None:
            wanted = self._state["step"]
            raise StageError(
                f"stage '{self._ctx.stage}' ended after {self._num_steps_done} steps of its scheduler and was to go on "
                f"after step {wanted}; the state that was kept belongs to another loop"
            )

    # Calls of components

    def answer(self, component: str) -> tuple[bool, Any]:
        """Return whether a call is to be answered without being made, and with what."""
        if self._state is None or component not in self._shapes:
            return False, None
        return True, self._shapes.zeros(component, self._ctx.device)

    def returned(self, component: str, output: Any) -> None:
        """A call was made."""
        if component in self._looped and not self._unkept:
            try:
                self._shapes.add(component, output)
            except CannotKeep as error:
                self._stop(str(error))

    # Calls of the scheduler

    def _set_timesteps(self, method: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if self._num_steps_done and self._state is None:
            self._stop("its pipeline runs more than one loop")
        return method(*args, **kwargs)

    def _step(
        self, name: str, scheduler: Any, method: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Any:
        self._num_steps_done += 1
        self._shapes.turn()
        if self._state is not None:
            return self._skip(name, scheduler, self._state)
        self._ctx.quiet = False
        result = method(*args, **kwargs)
        if not self._unkept:
            self.newest = self._state_of(name, scheduler, result)
            if self._is_due(scheduler):
                self._keep(self.newest)
        return result

    def _state_of(self, name: str, scheduler: Any, result: Any) -> Mapping[str, Any]:
        """The state as it is now. Tensors are not copied: a scheduler makes new ones, and fills lists in place."""
        attributes = {key: value for key, value in vars(scheduler).items() if key not in NO_STATE}
        return {
            "step": self._num_steps_done,
            "scheduler": name,
            "attributes": {key: list(item) if isinstance(item, list) else item for key, item in attributes.items()},
            "result": result,
            "generators": [[generator.get_state() for generator in group] for group in self._ctx.live_generators],
            "calls": dict(self._shapes.known),
        }

    def _is_due(self, scheduler: Any) -> bool:
        done = self._num_steps_done
        if self._every_steps is None or done % self._every_steps:
            return False
        return self._last_too or done < len(scheduler.timesteps)

    def _keep(self, state: Mapping[str, Any]) -> None:
        try:
            if any(_has_momentum(view) for view in self._views()):
                raise CannotKeep("its guider keeps a momentum")
            self._save(state["step"], state)
            self._num_saved = state["step"]
        except CannotKeep as error:
            self._stop(str(error))

    def _rescue(self) -> None:
        """The stage broke off: what has been done so far is kept."""
        if self.newest is not None and self.newest["step"] != self._num_saved and not self._unkept:
            self._keep(self.newest)

    def _stop(self, why: str) -> None:
        self._unkept = self._unkept or why
        self.newest = None
        if self._every_steps is not None:
            self._every_steps = None
            self._ctx.note(f"checkpoint.every_steps: no more steps of stage '{self._ctx.stage}' are kept: {why}")

    def _skip(self, name: str, scheduler: Any, state: Mapping[str, Any]) -> Any:
        if name != state["scheduler"]:
            raise StageError(f"stage '{self._ctx.stage}': the kept state is of '{state['scheduler']}', not of '{name}'")
        here = self._num_steps_done == state["step"]
        if here or self._num_steps_done == 1:  # from the first step on, so that the loop finds it in no odd state
            _put_back(scheduler, state)
        if here:
            self._state = None
            for group, states in zip(self._ctx.live_generators, state["generators"], strict=True):
                for generator, kept in zip(group, states, strict=True):
                    generator.set_state(kept)
        return fresh(state["result"])


def has_loop(component: Any) -> bool:
    """Whether a component is a scheduler, whose steps make a loop."""
    return callable(getattr(component, "step", None)) and callable(getattr(component, "set_timesteps", None))


def _has_momentum(view: Any) -> bool:
    return getattr(getattr(view, "guider", None), "momentum_buffer", None) is not None


def _put_back(scheduler: Any, state: Mapping[str, Any]) -> None:
    kept = {key: value for key, value in vars(scheduler).items() if key in NO_STATE}
    whole = {**kept, **fresh(state["attributes"], dict)}  # made first: it may find no memory
    vars(scheduler).clear()
    vars(scheduler).update(whole)
