"""Puts code around a method of a diffusers scheduler, for the time of a block. No torch.

The pipeline's loop stays as it is: it looks at the signature of `step` and may copy its scheduler, and both see what
they would see without us.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import update_wrapper
from typing import Any

Around = Callable[[Callable[..., Any], tuple[Any, ...], dict[str, Any]], Any]
"""Gets the method, its arguments by place and by name; returns what the caller is to get."""


class _Method:
    """A bound method with code around it. In a copy of its owner it is the copy's own plain method."""

    def __init__(self, owner: Any, method: Callable[..., Any], around: Around) -> None:
        update_wrapper(self, method)
        self._owner, self._method, self._around = owner, method, around

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self._around(self._method, args, kwargs)

    def __deepcopy__(self, memo: dict[int, Any]) -> Any:
        copied = memo.get(id(self._owner))
        return self if copied is None else getattr(type(copied), self._method.__name__).__get__(copied)


@contextmanager
def around_method(owner: Any, name: str, around: Around) -> Iterator[None]:
    """In this block `owner.NAME` is called through `around`; blocks may be nested."""
    before = vars(owner).get(name)
    vars(owner)[name] = _Method(owner, getattr(owner, name), around)
    try:
        yield
    finally:
        if before is None:
            vars(owner).pop(name, None)
        else:
            vars(owner)[name] = before
