"""Every call of a component while a request runs: answered, made, or made again after memory ran out. Imports torch."""

import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Protocol

import torch
from torch import nn

from framework.runtime.failures import layer_of, mark_layer
from framework.runtime.recovery import Recovery
from framework.runtime.room import Room


class CallListener(Protocol):
    """Hears of calls, the outermost ones only."""

    def answer(self, component: str) -> tuple[bool, Any]:
        """Return whether a call is answered without being made, and with what."""

    def returned(self, component: str, output: Any) -> None:
        """A call was made and returned `output`."""


class Calls:
    """Stands around the calls of one request. A call inside another is made as it is: its caller would repeat it.

    `room` gives something up between two tries, `where` says the place for the user.
    """

    def __init__(
        self,
        recovery: Recovery | None,
        module: Callable[[str], nn.Module],
        room: Room,
        where: Callable[[], str],
    ) -> None:
        self._recovery, self._module = recovery, module
        self._room, self._where = room, where
        self._listener: CallListener | None = None
        self._inside = False

    @contextmanager
    def heard_by(self, listener: CallListener) -> Iterator[None]:
        self._listener = listener
        try:
            yield
        finally:
            self._listener = None

    def around(self, component: str, call: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Serve one call; see `framework.runtime.hook`."""
        if self._inside:
            return call(*args, **kwargs)
        if self._listener is not None:
            answered, answer = self._listener.answer(component)
            if answered:
                return answer
        self._inside = True
        try:
            output = self._made(component, call, args, kwargs)
        finally:
            self._inside = False
        if self._listener is not None:
            self._listener.returned(component, output)
        return output

    def _made(self, component: str, call: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        states = [(generator, generator.get_state()) for generator in _generators((*args, *kwargs.values()))]
        started: float | None = None
        try:
            while True:
                try:
                    output = call(*args, **kwargs)
                    break
                except torch.OutOfMemoryError as error:
                    failure = error
                    mark_layer(failure, layer_of(failure, self._module(component)))
                    traceback.clear_frames(failure.__traceback__)  # they hold the activations of the failed call
                started = time.perf_counter() if started is None else started
                if not self._room.make(component):
                    self._room.account(component, failure)
                    raise failure
                failure.__traceback__ = None
                self._restart(component, states)
            if started is not None and self._recovery is not None:
                self._recovery.succeeded(f"'{component}'{self._where()}", time.perf_counter() - started)
            return output
        finally:
            if started is not None and self._recovery is not None:
                self._recovery.forget()

    def _restart(self, component: str, states: list[tuple[torch.Generator, torch.Tensor]]) -> None:
        """Put back what a broken-off call may have changed: drawn numbers, and features kept between its parts."""
        module: Any = self._module(component)
        if callable(getattr(module, "clear_cache", None)):
            module.clear_cache()
        for generator, state in states:
            generator.set_state(state)
        self._room.make_all_ready()


def _generators(values: tuple[Any, ...]) -> Iterator[torch.Generator]:
    for value in values:
        if isinstance(value, torch.Generator):
            yield value
        elif isinstance(value, list | tuple):
            yield from _generators(tuple(value))
