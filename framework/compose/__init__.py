"""Composing: YAML and the command line to one checked, frozen `RunSpec`. Names load on use; no torch."""

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
