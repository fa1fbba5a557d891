"""Embeddings kept on disk between runs, one safetensors file each, under the cache root. Imports torch.

A file's name is the hash of all an embedding depends on; no text is written in clear. A file that cannot be read is
made again, and a full disk costs the entry, never the run.
"""

import hashlib
import json
import os
from collections.abc import Mapping
from dataclasses import asdict
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import Tensor

from framework.outputs.atomic import atomic_path
from framework.paths import cache_root
from framework.runtime.prompt_cache import PromptKey
from framework.values import Embeddings

CAPACITY_BYTES = 4 * 1024**3
LAYOUT = "layout"  # the metadata entry that says how tensors make an embedding
ALONE = "."  # the name of a tensor that is the whole embedding


class PromptFiles:
    """Reads and writes embeddings in `folder`; the oldest read ones go first beyond `capacity_bytes`.

    `surroundings` are what else decides the numbers: device kind, numerics.
    """

    def __init__(
        self, surroundings: tuple[str, ...], folder: Path | None = None, capacity_bytes: int = CAPACITY_BYTES
    ) -> None:
        self._folder = folder or cache_root() / "prompts"
        self._capacity_bytes = capacity_bytes
        self._salt = (*surroundings, *(version(name) for name in ("torch", "diffusers", "transformers")))

    def get(self, key: PromptKey) -> Tensor | Embeddings | None:
        """Return what is stored for `key`, on the host, or None."""
        path = self._path(key)
        try:
            with safe_open(path, framework="pt") as file:
                layout = json.loads((file.metadata() or {})[LAYOUT])
                tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
            found = _assembled(layout, tensors)
            os.utime(path)
        except (OSError, SafetensorError, KeyError, ValueError, TypeError):
            return None
        return found

    def put(self, key: PromptKey, embedding: Tensor | Embeddings) -> None:
        """Store an embedding; a disk that refuses it is no reason to stop."""
        layout, tensors = _taken_apart(embedding)
        path = self._path(key)
        try:
            data = save(tensors, {LAYOUT: json.dumps(layout)})
            if len(data) > self._capacity_bytes:
                return
            path.parent.mkdir(parents=True, exist_ok=True)
            self._trim(len(data))
            with atomic_path(path) as partial:
                partial.write_bytes(data)
        except (OSError, SafetensorError):
            return

    def _path(self, key: PromptKey) -> Path:
        text = json.dumps([asdict(key), self._salt], sort_keys=True, ensure_ascii=True)
        return self._folder / f"{hashlib.sha256(text.encode()).hexdigest()}.safetensors"

    def _trim(self, coming_bytes: int) -> None:
        """Make room for a file of `coming_bytes`."""
        files = sorted(self._folder.glob("*.safetensors"), key=lambda file: file.stat().st_mtime_ns, reverse=True)
        total = coming_bytes
        for file in files:
            total += file.stat().st_size
            if total > self._capacity_bytes:
                file.unlink(missing_ok=True)


def _taken_apart(embedding: Tensor | Embeddings) -> tuple[Mapping[str, Any], dict[str, Tensor]]:
    """Return the layout (part -> number of tensors in its list, 0 for a tensor, None for none) and the tensors."""
    parts = embedding.parts if isinstance(embedding, Embeddings) else {ALONE: embedding}
    layout: dict[str, int | None] = {}
    tensors: dict[str, Tensor] = {}
    for name, part in parts.items():
        if isinstance(part, list):
            layout[name] = len(part)
            tensors |= {f"{name}.{index}": _plain(item) for index, item in enumerate(part)}
        else:
            layout[name] = None if part is None else 0
            tensors |= {} if part is None else {name: _plain(part)}
    return layout, tensors


def _plain(tensor: Tensor) -> Tensor:
    return tensor.detach().to("cpu", copy=True, memory_format=torch.contiguous_format)


def _assembled(layout: Mapping[str, int | None], tensors: Mapping[str, Tensor]) -> Tensor | Embeddings:
    if ALONE in layout:
        return tensors[ALONE]
    parts: dict[str, Tensor | list[Tensor] | None] = {}
    for name, count in layout.items():
        if count is None:
            parts[name] = None
        else:
            parts[name] = [tensors[f"{name}.{index}"] for index in range(count)] if count else tensors[name]
    return Embeddings(parts)
