"""Where a model's folder is: embedded, a local folder, or a snapshot in the hub's cache. No torch, no connection."""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from framework.errors import LoadError, did_you_mean
from framework.paths import EMBEDDED_MODELS
from framework.spec import EMPTY, ModelSpec

EMBEDDED_PREFIX = "embedded:"
INDEX_FILE = "model_index.json"
SOURCE_KEY = "pipeline.model.source"


def locate_model(model: ModelSpec, hints: Mapping[str, Any] = EMPTY) -> Path:
    """Return the folder that holds `model`; nothing is downloaded and no connection is tried.

    `hints` is the pipeline's; its `download_gib` goes into the message for a model that is not here. Raises
    `LoadError`.
    """
    if model.source.startswith(EMBEDDED_PREFIX):
        return _embedded(model.source.removeprefix(EMBEDDED_PREFIX))
    folder = Path(model.source).expanduser()
    if folder.is_dir():
        return _checked(folder)
    if not is_hub_name(model.source):
        raise LoadError(f"{SOURCE_KEY}: the folder '{model.source}' does not exist")
    snapshot = _cached_snapshot(model)
    if snapshot is None:
        raise LoadError(_missing(model, hints))
    return snapshot


def is_hub_name(source: str) -> bool:
    """Whether `source` reads as `owner/name` of the hub, not as a path."""
    parts = source.split("/")
    return len(parts) == 2 and all(parts) and source[0] not in "./~" and os.sep.join(parts) == source


def _embedded(name: str) -> Path:
    known = [path.parent.name for path in EMBEDDED_MODELS.glob(f"*/{INDEX_FILE}")]
    if name in known:
        return EMBEDDED_MODELS / name
    hint = did_you_mean(name, known)
    raise LoadError(f"{SOURCE_KEY}: no embedded model is called '{name}'" + (f"; {hint}" if hint else ""))


def _checked(folder: Path) -> Path:
    if not (folder / INDEX_FILE).is_file():
        raise LoadError(f"{SOURCE_KEY}: the folder '{folder}' holds no {INDEX_FILE}, so it is no diffusers pipeline")
    return folder


def _cached_snapshot(model: ModelSpec) -> Path | None:
    from huggingface_hub import try_to_load_from_cache

    found = try_to_load_from_cache(model.source, INDEX_FILE, revision=model.revision)
    return Path(found).parent if isinstance(found, str) else None


def _missing(model: ModelSpec, hints: Mapping[str, Any]) -> str:
    size = hints.get("download_gib")
    amount = f", a download of {size:g} GiB" if isinstance(size, int | float) else ""
    revision = f" --revision {model.revision}" if model.revision else ""
    return (
        f"{SOURCE_KEY}: '{model.source}' is not on this machine{amount}; get it with "
        f"`hf download {model.source}{revision}`, or give a local copy with {SOURCE_KEY}=FOLDER"
    )
