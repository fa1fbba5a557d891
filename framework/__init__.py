"""The names users may import; each loads on use, so that importing the package costs nothing. No torch."""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from framework.compose.composer import compose, compose_saved
    from framework.errors import ConfigError, FrameworkError
    from framework.graph import build_graph
    from framework.registry import register_family, register_stage, register_strategy
    from framework.spec import RunSpec

__version__ = "0.1.0"
__all__ = [
    "ConfigError",
    "FrameworkError",
    "RunSpec",
    "build_graph",
    "compose",
    "compose_saved",
    "register_family",
    "register_stage",
    "register_strategy",
]

_HOMES = {
    "ConfigError": "framework.errors",
    "FrameworkError": "framework.errors",
    "RunSpec": "framework.spec",
    "build_graph": "framework.graph",
    "compose": "framework.compose.composer",
    "compose_saved": "framework.compose.composer",
    "register_family": "framework.registry",
    "register_stage": "framework.registry",
    "register_strategy": "framework.registry",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'framework' has no attribute '{name}'")
    import importlib

    return getattr(importlib.import_module(_HOMES[name]), name)
