"""Embeddings of texts already encoded in this process. Imports torch."""

from collections import OrderedDict
from dataclasses import dataclass

import torch
from torch import Tensor

from framework.runtime.finite import all_finite

CAPACITY_BYTES = 512 * 1024**2


@dataclass(frozen=True, slots=True)
class PromptKey:
    """What an embedding depends on; positive and negative texts share entries, for the encoder sees no difference."""

    encoder: tuple[str, ...]
    dtype: str
    template: str
    max_length: int
    text: str


class PromptCache:
    """Least recently used embeddings go first; entries live in host memory so that they cost no device memory."""

    def __init__(self, capacity_bytes: int = CAPACITY_BYTES) -> None:
        self._entries: OrderedDict[PromptKey, Tensor] = OrderedDict()
        self._capacity_bytes = capacity_bytes

    def __len__(self) -> int:
        return len(self._entries)

    @property
    def size_bytes(self) -> int:
        return sum(entry.nbytes for entry in self._entries.values())

    def get(self, key: PromptKey, device: torch.device) -> Tensor | None:
        """Return the embedding on `device`, or None; asking makes it the most recently used."""
        entry = self._entries.get(key)
        if entry is None:
            return None
        self._entries.move_to_end(key)
        return entry.to(device)

    def put(self, key: PromptKey, embedding: Tensor) -> None:
        """Keep an embedding; one with NaN or infinity belongs to a run that is about to fail and is not kept."""
        if not all_finite(embedding):
            return
        self._entries[key] = embedding.detach().cpu()
        self._entries.move_to_end(key)
        while self.size_bytes > self._capacity_bytes:
            self._entries.popitem(last=False)
