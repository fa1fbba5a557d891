"""Artifacts of a run on disk: one safetensors file each, its layout as JSON in the header. Imports torch.

A file is written whole or not at all and carries a digest of its content, so one that a kill left without an entry in
the record can be told from a damaged one.
"""

import hashlib
import json
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import quote

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from framework.artifacts.tensor_tree import Damaged, put_together, take_apart
from framework.outputs.atomic import atomic_path
from framework.outputs.hashing import file_sha256

FOLDER = "artifacts"
SUFFIX = ".safetensors"
FORMAT = 1
_ENTRY = "artifact"  # of the file's metadata
MAX_HEADER_BYTES = 16 * 2**20


@dataclass(frozen=True, slots=True)
class About:
    """What an artifact is: the result of `stage`, or the state of its loop after `step`.

    `made_of` maps what its content depends on (request, numerics, weights, ...) to a hash.
    """

    stage: str
    request: int
    step: int | None = None
    made_of: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Saved:
    path: Path
    sha256: str
    size_bytes: int


class BadArtifact(Exception):
    """A file that is no artifact, or is damaged; the text says why, without its name."""


def artifact_path(folder: Path, about: About, num_requests: int) -> Path:
    """Return the file of an artifact inside a run folder: `artifacts/STAGE[-REQUEST][.stepN].safetensors`."""
    mark = f"-{about.request:03d}" if num_requests > 1 else ""
    step = f".step{about.step}" if about.step is not None else ""
    return folder / FOLDER / f"{quote(about.stage, safe='')}{mark}{step}{SUFFIX}"


def save_artifact(path: Path, about: About, values: Mapping[str, Any]) -> Saved:
    """Write values under their names. Raises `CannotKeep` for what is no data, `OSError` when the disk refuses."""
    tree, tensors = take_apart(dict(values))
    entry = {"format": FORMAT, **asdict(about), "tree": tree}
    text = json.dumps({**entry, "digest": _digest(entry, tensors)}, allow_nan=False, separators=(",", ":"))
    path.parent.mkdir(exist_ok=True)
    try:
        with atomic_path(path) as partial:
            save_file(tensors, str(partial), {_ENTRY: text})
            sha256, size = file_sha256(partial), partial.stat().st_size
    except SafetensorError as error:  # its errors of the disk are no OSError
        raise OSError(str(error)) from error
    return Saved(path, sha256, size)


def read_about(path: Path) -> About:
    """Return what an artifact is, from its header. Raises `BadArtifact`."""
    with _opened(path) as file:
        return _about(_entry(file))


def load_artifact(path: Path, device: torch.device, sha256: str | None = None) -> dict[str, Any]:
    """Return the values of an artifact, on `device` where they were on one.

    `sha256` is that of the whole file, where somebody noted it. Raises `BadArtifact` for damage of any kind.
    """
    if sha256 is not None and path.is_file() and file_sha256(path) != sha256:
        raise BadArtifact("its hash is not the one in the record")
    with _opened(path) as file:
        entry = _entry(file)
        try:
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
        except SafetensorError as error:
            raise BadArtifact(f"it cannot be read: {error}") from error
    digest = entry.pop("digest", None)
    if digest != _digest(entry, tensors):
        raise BadArtifact("its content is not what was written")
    try:
        values = put_together(entry["tree"], tensors, device)
    except (Damaged, ValueError, RuntimeError) as error:
        raise BadArtifact(str(error)) from error
    if not isinstance(values, dict):
        raise BadArtifact("it has no named values")
    return values


def find_artifacts(folder: Path) -> Iterator[tuple[Path, About | BadArtifact]]:
    """Yield every artifact of a run folder, or why a file is none, by name."""
    for path in sorted((folder / FOLDER).glob(f"*{SUFFIX}")):
        if path.name.startswith("."):
            continue  # a temporary file that a kill left behind
        try:
            yield path, read_about(path)
        except BadArtifact as error:
            yield path, error


def remove_rests(folder: Path) -> None:
    """Take away the temporary files that a killed process left in the artifacts of a run folder."""
    for path in (folder / FOLDER).glob(f".*.part{SUFFIX}"):
        path.unlink(missing_ok=True)


def _opened(path: Path) -> Any:
    try:
        return safe_open(path, framework="pt")
    except (OSError, SafetensorError) as error:
        raise BadArtifact(f"it cannot be read: {error}") from error


def _entry(file: Any) -> dict[str, Any]:
    text = (file.metadata() or {}).get(_ENTRY)
    if text is None:
        raise BadArtifact("it was not written by a run: its header says nothing about its content")
    if len(text) > MAX_HEADER_BYTES:
        raise BadArtifact("its header is too long")
    try:
        entry = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise BadArtifact("its header is not readable") from error
    if not isinstance(entry, dict) or entry.get("format") != FORMAT:
        raise BadArtifact(f"it has another format; this version reads {FORMAT}")
    return entry


def _about(entry: Mapping[str, Any]) -> About:
    match entry:
        case {"stage": str(stage), "request": int(request), "step": None | int() as step, "made_of": dict(made_of)}:
            return About(stage, request, step, {str(key): str(value) for key, value in made_of.items()})
    raise BadArtifact("its header is not readable")


def _digest(entry: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> str:
    digest = hashlib.sha256(json.dumps(entry, sort_keys=True, separators=(",", ":")).encode())
    for name in sorted(tensors):
        tensor = tensors[name]
        digest.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}\n".encode())
        digest.update(tensor.reshape(-1).view(torch.uint8).numpy().data if tensor.numel() else b"")
    return digest.hexdigest()
