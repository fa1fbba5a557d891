"""Third parties' stages and strategies: entry points, and modules named on the command line. No torch of ours."""

import importlib
import os
from collections.abc import Sequence
from functools import cache

from framework.errors import ConfigError
from framework.registry import STAGES, STRATEGIES

VARIABLE = "FRAMEWORK_PLUGINS"


@cache
def announce_entry_points() -> tuple[str, ...]:
    """Register the entry points `framework.stages` and `framework.strategies` without importing them.

    Returns the registered names; a name that is taken already is an error that names both sides.
    """
    from importlib.metadata import entry_points

    names = []
    for group, registry in (("framework.stages", STAGES), ("framework.strategies", STRATEGIES)):
        for point in entry_points(group=group):
            try:
                registry.add_lazy(point.name, point.value)
            except ValueError as error:
                raise ConfigError.of("", str(error), f"from the entry points {group}") from None
            names.append(point.name)
    return tuple(names)


def load_plugins(names: Sequence[str], where: str) -> None:
    """Import the modules in `names`; each registers its parts when imported.

    Raises `ConfigError` naming the module that cannot be imported and why.
    """
    for name in names:
        try:
            importlib.import_module(name)
        except Exception as error:  # a plugin may fail in any way; the line names it
            reason = (
                f"cannot import '{name}': {type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''}"
            )
            raise ConfigError.of("plugins", reason.rstrip(": "), where) from error


def plugins_of_environment() -> list[str]:
    """The modules that `FRAMEWORK_PLUGINS` names, split at commas."""
    return [name.strip() for name in os.environ.get(VARIABLE, "").split(",") if name.strip()]
