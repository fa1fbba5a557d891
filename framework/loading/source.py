"""Where a model's folder is: embedded, a local folder, or a snapshot in the hub's cache. No torch, no connection."""

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from framework.errors import LoadError, did_you_mean
from framework.paths import EMBEDDED_MODELS, expand
from framework.spec import EMPTY, ModelSpec

EMBEDDED_PREFIX = "embedded:"
INDEX_FILE = "model_index.json"
SOURCE_KEY = "pipeline.model.source"
SAFETENSORS, GGUF = ".safetensors", ".gguf"
WEIGHT_SUFFIXES = (SAFETENSORS, GGUF)
PICKLE_SUFFIXES = (".bin", ".pt", ".pth", ".ckpt", ".pkl")
_HUB_PATH = re.compile(r"(?P<repo>[\w-][\w.-]*/[\w.-]+)(?:@(?P<revision>[\w.-]+))?(?:/(?P<path>[^/].*))?")


@dataclass(frozen=True, slots=True)
class HubPath:
    """A place on the hub, written `owner/name`, `owner/name/folder`, `owner/name@revision/folder/file.safetensors`."""

    repo: str
    revision: str | None = None
    path: str = ""  # of a folder or a file in the repository; empty: its root

    @property
    def is_file(self) -> bool:
        return self.path.endswith(WEIGHT_SUFFIXES + PICKLE_SUFFIXES)


def locate_model(model: ModelSpec, hints: Mapping[str, Any] = EMPTY) -> Path:
    """Return the folder that holds `model`; nothing is downloaded and no connection is tried.

    `hints` is the pipeline's; its `download_gib` goes into the message for a model that is not here. Raises
    `LoadError`.
    """
    if model.source.startswith(EMBEDDED_PREFIX):
        return _embedded(model.source.removeprefix(EMBEDDED_PREFIX))
    folder = expand(model.source)
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


def parse_hub_path(source: str) -> HubPath | None:
    """Return the place on the hub that `source` reads as, or None; what exists on this machine is asked for first."""
    found = _HUB_PATH.fullmatch(source)
    if found is None or ".." in source or found["repo"].endswith(WEIGHT_SUFFIXES + PICKLE_SUFFIXES):
        return None
    return HubPath(found["repo"], found["revision"], (found["path"] or "").rstrip("/"))


def cached_snapshot(repo: str, revision: str | None = None) -> Path | None:
    """Return the folder of `repo` in the hub's cache at `revision` (a branch, tag or commit; None: main), or None."""
    from huggingface_hub import constants
    from huggingface_hub.file_download import repo_folder_name

    try:
        folder = Path(constants.HF_HUB_CACHE) / repo_folder_name(repo_id=repo, repo_type="model")
    except ValueError:  # no name that the hub would take
        return None
    name = revision or "main"
    reference = folder / "refs" / name
    commit = reference.read_text(encoding="utf-8").strip() if reference.is_file() else name
    snapshot = folder / "snapshots" / commit
    return snapshot if snapshot.is_dir() else None


def _cached_snapshot(model: ModelSpec) -> Path | None:
    snapshot = cached_snapshot(model.source, model.revision)
    return snapshot if snapshot is not None and (snapshot / INDEX_FILE).is_file() else None


def _missing(model: ModelSpec, hints: Mapping[str, Any]) -> str:
    size = hints.get("download_gib")
    amount = f", a download of {size:g} GiB" if isinstance(size, int | float) else ""
    revision = f" at revision '{model.revision}'" if model.revision else ""
    return (
        f"{SOURCE_KEY}: '{model.source}'{revision} is not on this machine{amount}; get it with `framework download` "
        f"and the same keys, or give a local copy with {SOURCE_KEY}=FOLDER"
    )
