"""Where things are: the packaged configuration, the embedded models and the cache. No torch."""

import os
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
CONF = ROOT / "conf"
SCHEMAS = CONF / "schema"
EMBEDDED_MODELS = CONF / "models"


def cache_root() -> Path:
    """`$FRAMEWORK_CACHE`, else the XDG cache folder; created by whoever writes there."""
    chosen = os.environ.get("FRAMEWORK_CACHE")
    if chosen:
        return expand(chosen)
    base = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    return expand(base) / "framework"


def expand(path: str | Path) -> Path:
    """Return `path` with a leading `~` as the home folder; a `~name` of nobody is a name like any other."""
    return Path(os.path.expanduser(path))
