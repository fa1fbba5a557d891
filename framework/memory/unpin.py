"""Gives page-locked memory back when the host runs short: weights go to ordinary memory, or stay in their file.

Imports torch. Ordinary memory the system may swap, pages of a file it may drop; page-locked memory it cannot touch.
"""

from collections.abc import Iterable

import torch

from framework.memory.absent import Placeholder
from framework.memory.blobs import Blob, Source
from framework.memory.host_budget import HostMemory
from framework.memory.host_store import HostStore
from framework.memory.parcel import Parcel
from framework.memory.pin_ledger import RESERVE_BYTES

PRESSURE_BYTES = RESERVE_BYTES // 2
"""With less than this left, the host needs memory more than copies need speed."""


def is_short(memory: HostMemory) -> bool:
    """Whether the host has so little left that pins should go."""
    return memory.available_bytes < PRESSURE_BYTES


def unpin(parcels: Iterable[Parcel], store: HostStore) -> int:
    """Move pinned parcels of a component that is not in use off page-locked memory; return the bytes given back.

    Nothing is pinned from then on. Buffers, which modules hold between uses, stay where they are.
    """
    given_back = 0
    for parcel in parcels:
        blob = parcel.blob
        if blob.tier != "pinned" or not _has_placeholders(parcel):
            continue
        if blob.wait_sent is not None:
            blob.wait_sent()
        parcel.blob = _in_file(parcel) or _in_memory(blob)
        if parcel.blob.tier == "mapped":
            store.host.release(parcel.component, parcel.name)
        store.ledger.release(parcel.component, parcel.name)
        given_back += blob.size_bytes
    store.ledger.spendable_bytes = store.ledger.granted_bytes
    return given_back


def _has_placeholders(parcel: Parcel) -> bool:
    return all(isinstance(tensor, Placeholder) for _, tensors in parcel.idle for tensor in tensors.values())


def _in_file(parcel: Parcel) -> Blob | None:
    """The same bytes where the mapped checkpoint file has them, if it has all."""
    sources = []
    for entry in parcel.entries:
        if entry.origin is None or len(entry.pieces) != 1 or not entry.origin.is_contiguous():
            return None
        data = entry.origin.detach().reshape(-1).view(torch.uint8)
        sources.append(Source(entry.pieces[0].offset_bytes, data))
    return Blob(parcel.size_bytes, "mapped", tuple(sources))


def _in_memory(blob: Blob) -> Blob:
    assert blob.memory is not None, "a pinned blob is one run of bytes"
    memory = torch.empty(blob.size_bytes, dtype=torch.uint8)
    memory.copy_(blob.memory)
    return Blob(blob.size_bytes, "pageable", (Source(0, memory),), memory)
