"""Hooks that torch.compile does not look into: moving weights is no part of a graph. Imports torch."""

from collections.abc import Callable
from typing import Any, TypeVar, cast

import torch

Hook = TypeVar("Hook", bound=Callable[..., Any])


def uncompiled(hook: Hook) -> Hook:
    """Return `hook` for use around compiled modules: it runs as plain Python and causes no recompilation."""
    return cast(Hook, torch.compiler.disable(hook))  # type: ignore[no-untyped-call]
