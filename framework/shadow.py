"""Detects folders of the user's that hide the program's own top-level packages. No torch."""

import sys
from importlib.util import find_spec
from pathlib import Path

from framework.errors import ConfigError
from framework.paths import ROOT

IMPORTED = ("stages", "strategies")
DATA = ("conf",)


def check_shadowing() -> None:
    """Raise `ConfigError` when `stages` or `strategies` is somebody else's; say so on stderr for `conf`.

    `conf` is found by its path, so another package of that name changes nothing but is easily mistaken for ours.
    """
    for name in IMPORTED:
        other = _other(name)
        if other is not None:
            reason = f"the folder '{other}' hides the program's own package '{name}'"
            raise ConfigError.of("", reason, hint="run from another folder, or rename it")
    for name in DATA:
        other = _other(name)
        if other is not None:
            print(f"note: '{other}' is not read; use --config-dir {other}", file=sys.stderr)


def _other(name: str) -> Path | None:
    spec = find_spec(name)
    if spec is None or spec.origin is None:
        return None
    folder = Path(spec.origin).resolve().parent
    return None if folder == ROOT / name else folder
