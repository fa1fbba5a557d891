"""One unit that travels: weights of a layer, their bytes on the host, their places in the module. Imports torch."""

from collections.abc import Callable, Iterable, Sequence, Set
from dataclasses import dataclass
from typing import TypeAlias

import torch
from torch import Tensor

from framework.errors import FrameworkError
from framework.memory.absent import make_placeholder
from framework.memory.blobs import Blob, Layout, Piece, Source, take_off_file
from framework.memory.ownership import Place, Weight
from framework.memory.recipes import Build

Bound: TypeAlias = list[tuple[dict[str, Tensor | None], dict[str, Tensor]]]
"""For each `_parameters` or `_buffers`, the entries that put a set of tensors in place."""


class ChangedWeight(FrameworkError):
    """A weight on the device was written to outside a weight edit; the host would no longer hold the master."""


@dataclass(frozen=True, slots=True)
class Entry:
    """How one weight is made from the bytes of the blob, and where it belongs."""

    pieces: tuple[Piece, ...]
    build: Build
    places: tuple[Place, ...]
    origin: Tensor | None = None  # the weight in its mapped checkpoint file

    @property
    def name(self) -> str:
        return self.places[0].name


class Parcel:
    """Weights of one component that move together; `name` is the layer's."""

    def __init__(
        self,
        component: str,
        name: str,
        weights: Sequence[Weight],
        layout: Layout,
        blob: Blob,
        device: torch.device,
        origins: Sequence[Tensor | None] = (),
    ) -> None:
        self.component, self.name, self.blob = component, name, blob
        self.off_file: Callable[[Blob], Blob] = take_off_file  # whoever keeps the books of the host puts its own
        self.size_bytes = blob.size_bytes
        found = origins or [None] * len(weights)
        self.entries = tuple(
            Entry(pieces, weight.recipe.build, tuple(weight.places), origin)
            for weight, pieces, origin in zip(weights, layout.pieces, found, strict=True)
        )
        absent = [
            make_placeholder(weight.tensor, device, component, name, weight.name, weight.recipe.attributes)
            for weight in weights
        ]
        self.idle = self._bind_tensors(absent)

    def bind(self, memory: Tensor) -> Bound:
        """Return the weights as views of `memory`, a uint8 tensor that holds the blob's bytes."""
        with torch.inference_mode(False), torch.no_grad():  # inference tensors have no version to watch
            runs = {dtype: memory.view(dtype) for dtype in {p.dtype for entry in self.entries for p in entry.pieces}}
            made = [entry.build([piece.cut(runs[piece.dtype]) for piece in entry.pieces]) for entry in self.entries]
        return self._bind_tensors(made)

    def bind_host(self) -> Bound:
        """Return the weights as views of the host's bytes."""
        with torch.inference_mode(False), torch.no_grad():
            made = [entry.build([self.host_view(piece) for piece in entry.pieces]) for entry in self.entries]
        return self._bind_tensors(made)

    def leave(self) -> None:
        """Put the weights into their modules, on the host, for good; the pins of their bytes are given back."""
        if self.blob.tier == "pinned":
            if self.blob.wait_sent is not None:
                self.blob.wait_sent()
            (source,) = self.blob.sources
            memory = torch.empty_like(source.data, pin_memory=False).copy_(source.data)
            self.blob = Blob(self.blob.size_bytes, "pageable", (Source(0, memory),), memory)
        install(self.bind_host())

    def host_weights(self) -> dict[str, Tensor]:
        """Return the weights as writable views of the master's bytes, by each of their names.

        These are the host's, except for weights that were handed over to the device for good. Waits for copies that
        still read them; bytes in a mapped file are first copied off it.
        """
        if self.blob.wait_sent is not None:
            self.blob.wait_sent()
        if self.blob.tier == "mapped":
            self.blob = self.off_file(self.blob)
        with torch.inference_mode(False), torch.no_grad():
            made = [entry.build([self.host_view(piece) for piece in entry.pieces]) for entry in self.entries]
        pairs = zip(self.entries, made, strict=True)
        return {place.name: tensor for entry, tensor in pairs for place in entry.places}

    def hand_over(self, memory: Tensor, bound: Bound) -> None:
        """Make `memory` on the device the master, and `bound`, its views, what is always in place."""
        self.blob = Blob(self.blob.size_bytes, "device", (Source(0, memory),), memory)
        self.idle = bound

    def take_back(self, blob: Blob) -> None:
        """Undo `hand_over`: the bytes of `blob` on the host are the master again."""
        self.blob = blob
        self.idle = self.bind_host()

    def origins(self) -> dict[str, Tensor]:
        """Return the weights as their checkpoint file has them, by each of their names, as far as it is mapped."""
        kept = (entry for entry in self.entries if entry.origin is not None)
        return {place.name: entry.origin for entry in kept for place in entry.places if entry.origin is not None}

    def host_view(self, piece: Piece) -> Tensor:
        """Return a piece as a view of the host's bytes: the master that weight edits write to."""
        for source in self.blob.sources:
            start = piece.offset_bytes - source.offset_bytes
            if 0 <= start < source.data.numel():
                return Piece(start, piece.dtype, piece.size, piece.stride).view(source.data)
        return torch.empty_strided(piece.size, piece.stride, dtype=piece.dtype)  # no elements, so no bytes

    def clear(self) -> None:
        """Put in place what is there between uses: placeholders, or the host's own buffers."""
        install(self.idle)

    def changed(self, memory: Tensor) -> list[str]:
        """Return the names of weights whose bytes in `memory` differ from the host's. Waits for the device."""
        names = []
        for entry in self.entries:
            for piece in entry.pieces:
                if not torch.equal(_bytes(piece.view(memory).cpu()), _bytes(self.host_view(piece))):
                    names.append(entry.name)
                    break
        return names

    def exchanged(self, bound: Bound) -> list[str]:
        """Return the names of entries that hold another tensor than `bound` has for them."""
        wanted = {(id(holder), key): tensor for holder, tensors in bound for key, tensor in tensors.items()}
        places = [place for entry in self.entries for place in entry.places]
        return [p.name for p in places if p.holder.get(p.key) is not wanted[id(p.holder), p.key]]

    def _bind_tensors(self, tensors: Sequence[Tensor]) -> Bound:
        grouped: dict[int, tuple[dict[str, Tensor | None], dict[str, Tensor]]] = {}
        for entry, tensor in zip(self.entries, tensors, strict=True):
            for place in entry.places:
                grouped.setdefault(id(place.holder), (place.holder, {}))[1][place.key] = tensor
        return list(grouped.values())


def host_weights(parcels: Iterable[Parcel], names: Set[str] | None) -> dict[str, Tensor]:
    """Return the writable weights of those parcels that hold one of `names`, of all where it is None."""
    found: dict[str, Tensor] = {}
    for parcel in parcels:
        if names is None or any(place.name in names for entry in parcel.entries for place in entry.places):
            found |= parcel.host_weights()
    return found


def install(bound: Bound) -> None:
    """Put tensors in place, in `_parameters` and `_buffers` themselves: `.data =` would cost twice as much."""
    for holder, tensors in bound:
        holder.update(tensors)


def _bytes(tensor: Tensor) -> Tensor:
    return tensor.detach().contiguous().view(-1).view(torch.uint8)
