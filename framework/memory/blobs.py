"""The weights of one layer as one run of bytes on the host: pinned, pageable, or still in the checkpoint file.

Imports torch. Every tensor starts at a multiple of 256 bytes, keeps dtype and strides, and ties are stored once.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Literal

import torch
from torch import Tensor

from framework.memory.ownership import Weight, extent_bytes

ALIGNMENT_BYTES = 256
BASE_ALIGNMENT_BYTES = 64
Tier = Literal["pinned", "pageable", "mapped", "device"]
"""`device`: there is no copy on the host, the device's memory is the master."""


@dataclass(frozen=True, slots=True)
class Piece:
    """A plain tensor inside a blob: where it starts and how it is read."""

    offset_bytes: int
    dtype: torch.dtype
    size: tuple[int, ...]
    stride: tuple[int, ...]

    def view(self, memory: Tensor) -> Tensor:
        """Return the tensor as a view of `memory`, one uint8 tensor of a whole blob."""
        last = sum((size - 1) * stride for size, stride in zip(self.size, self.stride, strict=True))
        num_elements = 0 if 0 in self.size else last + 1
        run = memory.narrow(0, self.offset_bytes, num_elements * self.dtype.itemsize)
        return run.view(self.dtype).as_strided(self.size, self.stride)

    def cut(self, run: Tensor) -> Tensor:
        """Return the tensor as a view of `run`, the memory of a whole blob read as this dtype."""
        return run.as_strided(self.size, self.stride, run.storage_offset() + self.offset_bytes // self.dtype.itemsize)


@dataclass(frozen=True, slots=True)
class Source:
    """A run of bytes that still lies where it was loaded, and where it goes in the blob."""

    offset_bytes: int
    data: Tensor  # uint8, contiguous, on the host


@dataclass(slots=True)
class Blob:
    """Bytes of one layer on the host. `memory` is all of them in one run, or None where they lie as they were loaded.

    `wait_sent` lets the host wait for the last copy that reads them; a blob dies only after it.
    """

    size_bytes: int
    tier: Tier
    sources: tuple[Source, ...]
    memory: Tensor | None = field(default=None)
    wait_sent: Callable[[], None] | None = field(default=None)

    def __del__(self) -> None:
        if self.wait_sent is not None:
            self.wait_sent()


@dataclass(frozen=True, slots=True)
class Layout:
    """Where each leaf of each weight lies in the blob, and the runs of bytes to be copied there."""

    pieces: tuple[tuple[Piece, ...], ...]  # for each weight, its leaves
    sources: tuple[Source, ...]
    size_bytes: int


def lay_out(weights: Sequence[Weight]) -> Layout:
    """Decide the layout of a blob. Overlapping tensors stay overlapping; weights must lie on the host."""
    leaves = [leaf for weight in weights for leaf in weight.recipe.leaves]
    sources: list[Source] = []
    starts: dict[int, int] = {}  # leaf number -> offset in the blob
    size = 0
    for run in _runs(leaves):
        size = align(size)
        first = min(leaves[i].data_ptr() for i in run)
        end = max(leaves[i].data_ptr() + extent_bytes(leaves[i]) for i in run)
        sources.append(Source(size, _bytes_of(leaves[run[0]], first, end)))
        starts |= {i: size + leaves[i].data_ptr() - first for i in run}
        size += end - first
    pieces = iter([_piece(leaf, starts.get(i, 0)) for i, leaf in enumerate(leaves)])
    grouped = tuple(tuple(next(pieces) for _ in weight.recipe.leaves) for weight in weights)
    return Layout(grouped, tuple(sources), align(size))


def fill(layout: Layout, memory: Tensor, tier: Tier) -> Blob:
    """Copy a layout's bytes into `memory` and return the blob that owns it."""
    with torch.inference_mode(False):
        for source in layout.sources:
            memory.narrow(0, source.offset_bytes, source.data.numel()).copy_(source.data)
    return Blob(layout.size_bytes, tier, (Source(0, memory),), memory)


def leave_mapped(layout: Layout) -> Blob:
    """Keep a layout's bytes where they are, in the mapped checkpoint file."""
    return Blob(layout.size_bytes, "mapped", layout.sources)


def take_off_file(blob: Blob) -> Blob:
    """Return a copy of a mapped blob in memory of its own."""
    memory = torch.empty(blob.size_bytes, dtype=torch.uint8)
    for source in blob.sources:
        memory.narrow(0, source.offset_bytes, source.data.numel()).copy_(source.data)
    return Blob(blob.size_bytes, "pageable", (Source(0, memory),), memory)


def align(size_bytes: int) -> int:
    return -(-size_bytes // ALIGNMENT_BYTES) * ALIGNMENT_BYTES


def _runs(leaves: Sequence[Tensor]) -> list[list[int]]:
    """Leaf numbers grouped by overlapping bytes, in the order of first appearance.

    Tensors that together fill one aligned storage (a fused weight cut in three) stay together too.
    """
    filled = [i for i, leaf in enumerate(leaves) if leaf.numel()]
    whole = _whole_storages([leaves[i] for i in filled])
    order = sorted(filled, key=lambda i: leaves[i].data_ptr())
    runs: list[list[int]] = []
    end, storage = -1, 0
    for i in order:
        own = leaves[i].untyped_storage().data_ptr()
        if leaves[i].data_ptr() < end or (own in whole and own == storage):
            runs[-1].append(i)
        else:
            runs.append([i])
        storage = own
        end = max(end, leaves[i].data_ptr() + extent_bytes(leaves[i]))
    return sorted((sorted(run) for run in runs), key=lambda run: run[0])


def _whole_storages(leaves: Sequence[Tensor]) -> set[int]:
    """Addresses of aligned storages of which the leaves use every byte."""
    spans: dict[int, list[tuple[int, int]]] = {}
    sizes: dict[int, int] = {}
    for leaf in leaves:
        storage = leaf.untyped_storage()
        sizes[storage.data_ptr()] = storage.nbytes()
        spans.setdefault(storage.data_ptr(), []).append((leaf.data_ptr(), leaf.data_ptr() + extent_bytes(leaf)))
    return {
        start
        for start, own in spans.items()
        if start % BASE_ALIGNMENT_BYTES == 0 and len(own) > 1 and _covered(own) == sizes[start]
    }


def _covered(spans: list[tuple[int, int]]) -> int:
    covered, last = 0, 0
    for start, end in sorted(spans):
        covered += max(0, end - max(start, last))
        last = max(last, end)
    return covered


def _bytes_of(leaf: Tensor, first: int, end: int) -> Tensor:
    """The bytes first..end of the leaf's storage as one uint8 tensor, without a copy."""
    storage = leaf.untyped_storage()
    with torch.inference_mode(False):
        return torch.empty(0, dtype=torch.uint8).set_(storage, first - storage.data_ptr(), (end - first,), (1,))


def _piece(leaf: Tensor, offset_bytes: int) -> Piece:
    return Piece(offset_bytes, leaf.dtype, tuple(leaf.size()), tuple(leaf.stride()))
