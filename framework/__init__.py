"""The names users may import; each loads on use, so that importing the package costs nothing. No torch.

`docs/python-api.md` shows how they go together.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from framework.api.planned import PlannedComponent, PlannedStage, PlanResult, plan
    from framework.api.results import Interval, MemoryPoint, Output, Result, Timeline
    from framework.api.session import Residence, Session, run
    from framework.api.session import open_session as open
    from framework.compose.composer import compose, compose_saved
    from framework.errors import (
        ConfigError,
        FrameworkError,
        Interrupted,
        LoadError,
        OutputError,
        PlanError,
        StageError,
    )
    from framework.graph import build_graph
    from framework.registry import register_family, register_stage, register_strategy
    from framework.runtime.events import StepDone
    from framework.spec import RunSpec

__version__ = "0.1.0"
__all__ = [
    "ConfigError",
    "FrameworkError",
    "Interrupted",
    "Interval",
    "LoadError",
    "MemoryPoint",
    "Output",
    "OutputError",
    "PlanError",
    "PlanResult",
    "PlannedComponent",
    "PlannedStage",
    "Residence",
    "Result",
    "RunSpec",
    "Session",
    "StageError",
    "StepDone",
    "Timeline",
    "build_graph",
    "compose",
    "compose_saved",
    "open",
    "plan",
    "register_family",
    "register_stage",
    "register_strategy",
    "run",
]

_HOMES = {
    "framework.api.planned": ("PlanResult", "PlannedComponent", "PlannedStage", "plan"),
    "framework.api.results": ("Interval", "MemoryPoint", "Output", "Result", "Timeline"),
    "framework.api.session": ("Residence", "Session", "open_session", "run"),
    "framework.compose.composer": ("compose", "compose_saved"),
    "framework.errors": (
        "ConfigError",
        "FrameworkError",
        "Interrupted",
        "LoadError",
        "OutputError",
        "PlanError",
        "StageError",
    ),
    "framework.graph": ("build_graph",),
    "framework.registry": ("register_family", "register_stage", "register_strategy"),
    "framework.runtime.events": ("StepDone",),
    "framework.spec": ("RunSpec",),
}


def __getattr__(name: str) -> Any:
    wanted = "open_session" if name == "open" else name
    home = next((module for module, names in _HOMES.items() if wanted in names), None)
    if home is None or name == "open_session":
        raise AttributeError(f"module 'framework' has no attribute '{name}'")
    import importlib

    return getattr(importlib.import_module(home), wanted)


def __dir__() -> list[str]:
    return sorted((*globals(), *__all__))
