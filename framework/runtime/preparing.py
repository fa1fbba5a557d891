"""A pipeline's own preparing methods (`prepare_latents`), run in one stage and answered in a later one. Imports torch.

Pipelines encode a picture inside these methods and take no ready latents of it. A conditioning stage runs the call as
far as the last of them and keeps their returns; the denoise stage makes the same call, whose methods then return what
was kept. The methods draw the noise, so the generators' states are kept beside them.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor

from framework.errors import StageError
from framework.values import Condition

PREPARE = ("prepare_latents",)


class _Prepared(BaseException):
    """Ends a call whose preparation is done. No `Exception`: pipelines catch some of those."""


def record(
    view: Any,
    arguments: Mapping[str, Any],
    generators: Sequence[torch.Generator],
    methods: Sequence[str] = PREPARE,
) -> Condition:
    """Call `view` until the last of `methods` has returned, and return what they made.

    `arguments` are the whole call's, generators included. Raises `StageError` when the call ends before that.
    """
    found: dict[str, Any] = {}

    def recorder(name: str) -> Any:
        method = getattr(view, name)

        def run(*args: Any, **kwargs: Any) -> Any:
            found[name] = method(*args, **kwargs)
            if name == methods[-1]:
                raise _Prepared
            return found[name]

        return run

    with _replaced(view, {name: recorder(name) for name in methods}):
        try:
            view(**arguments)
        except _Prepared:
            return Condition(found, tuple(generator.get_state() for generator in generators))
    raise StageError(f"{type(view).__name__} made its picture without calling {methods[-1]}")


@contextmanager
def replayed(view: Any, condition: Condition, device: torch.device) -> Iterator[None]:
    """In this block the preparing methods of `view` return what `condition` kept, on `device`."""

    moved = {name: _player(_on(value, device)) for name, value in condition.prepared.items()}
    with _replaced(view, moved):
        yield


def _on(value: "Tensor | tuple[Tensor | None, ...]", device: torch.device) -> Any:
    """A fresh copy on the device: loops may write into what they are given, and an artifact is read more than once."""
    if isinstance(value, Tensor):
        return value.to(device, copy=True)
    if isinstance(value, tuple | list):
        return tuple(_on(item, device) if isinstance(item, Tensor) else item for item in value)
    return value


@contextmanager
def answered(view: Any, **values: Any) -> Iterator[None]:
    """In this block the methods of `view` with these names return these values, whatever they are asked."""
    with _replaced(view, {name: _player(value) for name, value in values.items()}):
        yield


@contextmanager
def kept_dtype(module: Any) -> Iterator[None]:
    """In this block `module.to(...)` changes nothing: the run's own dtype holds, and managed weights do not move.

    Some pipelines cast the VAE up before they encode and down after it.
    """
    with answered(module, to=module):
        yield


def _player(value: Any) -> Any:
    return lambda *args, **kwargs: value


@contextmanager
def _replaced(owner: Any, methods: Mapping[str, Any]) -> Iterator[None]:
    """Put methods on the instance, where they hide those of the class, and take them away again."""
    before = {name: vars(owner)[name] for name in methods if name in vars(owner)}
    for name, method in methods.items():
        setattr(owner, name, method)
    try:
        yield
    finally:
        for name in methods:
            delattr(owner, name)
        for name, method in before.items():
            setattr(owner, name, method)
