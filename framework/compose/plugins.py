"""Third parties' stages and strategies: entry points, and modules named on the command line. No torch of ours."""

import glob
import importlib
import os
import sys
from collections.abc import Iterator, Sequence
from functools import cache
from typing import Any

from framework.errors import ConfigError
from framework.registry import STAGES, STRATEGIES, Registry

VARIABLE = "FRAMEWORK_PLUGINS"


GROUPS: dict[str, Registry[Any]] = {"framework.stages": STAGES, "framework.strategies": STRATEGIES}


@cache
def announce_entry_points() -> tuple[str, ...]:
    """Register the entry points `framework.stages` and `framework.strategies` without importing them.

    Returns the registered names; a name that is taken already is an error that names both sides.
    """
    names = []
    for group, name, target in _entry_points():
        try:
            GROUPS[group].add_lazy(name, target)
        except ValueError as error:
            raise ConfigError.of("", str(error), f"from the entry points {group}") from None
        names.append(name)
    return tuple(names)


def _entry_points() -> Iterator[tuple[str, str, str]]:
    """Yield (group, name, target) of our groups; `importlib.metadata` takes 50 ms, so only what matters is read."""
    seen: set[str] = set()
    for folder in sys.path:
        for file in sorted(glob.glob(os.path.join(glob.escape(folder or "."), "*-info", "entry_points.txt"))):
            package = os.path.basename(os.path.dirname(file))
            if package in seen:
                continue
            seen.add(package)
            with open(file, encoding="utf-8") as opened:
                text = opened.read()
            if any(f"[{group}]" in text for group in GROUPS):
                yield from _parse(text)


def _parse(text: str) -> Iterator[tuple[str, str, str]]:
    group = ""
    for line in text.splitlines():
        if line.startswith("["):
            group = line.strip().strip("[]")
        elif group in GROUPS and "=" in line:
            name, _, target = line.partition("=")
            yield group, name.strip(), target.strip()


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
