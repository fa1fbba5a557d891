"""Embeddings of texts that are already encoded, in this process or in files of earlier ones. Imports torch."""

from collections import OrderedDict
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from framework.runtime.finite import all_finite, tensors_of
from framework.values import Embeddings

CAPACITY_BYTES = 512 * 1024**2


@dataclass(frozen=True, slots=True)
class PromptKey:
    """What an embedding depends on; positive and negative texts share entries, for the encoder sees no difference."""

    encoder: tuple[str, ...]
    dtype: str
    template: str
    max_length: int
    text: str


class Files(Protocol):
    """Where embeddings outlive the process; see `framework.runtime.prompt_files`."""

    def get(self, key: PromptKey) -> Tensor | Embeddings | None:
        """Return what is stored for `key`, on the host, or None."""

    def put(self, key: PromptKey, embedding: Tensor | Embeddings) -> None:
        """Store an embedding that lies on the host."""


class PromptCache:
    """Least recently used embeddings go first; entries live in host memory so that they cost no device memory.

    `files` are asked for what memory does not have; with `capacity_bytes` 0 only they keep anything.
    """

    def __init__(self, capacity_bytes: int = CAPACITY_BYTES, files: Files | None = None) -> None:
        self._files = files
        self._entries: OrderedDict[PromptKey, Tensor | Embeddings] = OrderedDict()
        self._capacity_bytes = capacity_bytes

    def __len__(self) -> int:
        return len(self._entries)

    @property
    def size_bytes(self) -> int:
        return sum(tensor.nbytes for entry in self._entries.values() for tensor in tensors_of(entry))

    def get(self, key: PromptKey, device: torch.device) -> Tensor | Embeddings | None:
        """Return the embedding on `device`, or None; asking makes it the most recently used."""
        entry = self._entries.get(key)
        if entry is None and self._files is not None:
            entry = self._files.get(key)
        if entry is None:
            return None
        self._keep(key, entry)
        return _on(entry, device)

    def put(self, key: PromptKey, embedding: Tensor | Embeddings) -> None:
        """Keep an embedding; one with NaN or infinity belongs to a run that is about to fail and is not kept."""
        if not all_finite(embedding):
            return
        kept = _on(embedding, torch.device("cpu"))
        self._keep(key, kept)
        if self._files is not None:
            self._files.put(key, kept)

    def _keep(self, key: PromptKey, entry: Tensor | Embeddings) -> None:
        self._entries[key] = entry
        self._entries.move_to_end(key)
        while self.size_bytes > self._capacity_bytes:
            self._entries.popitem(last=False)


def _on(value: Tensor | Embeddings, device: torch.device) -> Tensor | Embeddings:
    if isinstance(value, Tensor):
        return value.detach().to(device)
    return Embeddings({name: _part_on(part, device) for name, part in value.parts.items()})


def _part_on(part: Tensor | list[Tensor] | None, device: torch.device) -> Tensor | list[Tensor] | None:
    if isinstance(part, list):
        return [item.detach().to(device) for item in part]
    return None if part is None else part.detach().to(device)
