"""Composing: YAML and the command line to one checked, frozen `RunSpec`. Names load on use; no torch."""

import sys
from types import ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from framework.compose.arguments import Flags
    from framework.compose.composer import compose, compose_saved

__all__ = ["Flags", "compose", "compose_saved"]


def __getattr__(name: str) -> Any:
    if name == "Flags":
        from framework.compose.arguments import Flags

        return Flags
    if name in ("compose", "compose_saved"):
        from framework.compose import composer

        return getattr(composer, name)
    raise AttributeError(f"module 'framework.compose' has no attribute '{name}'")


class _CallableModule(ModuleType):
    """`framework.compose` is the function users call and, once any file in here is imported, also this module."""

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        from framework.compose.composer import compose

        return compose(*args, **kwargs)


sys.modules[__name__].__class__ = _CallableModule
