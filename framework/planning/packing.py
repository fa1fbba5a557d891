"""How the engine packs weights, as arithmetic: 256-byte aligned tensors in parcels, parcels in granules. No torch."""

from collections.abc import Iterable

ALIGNMENT_BYTES = 256
"""Where a tensor may start inside a parcel (`framework.memory.blobs`)."""

GRANULE_BYTES = 512
"""What one allocation on the device is rounded up to: the caching allocator's small blocks."""

CHUNK_BYTES = 256 * 1024**2
"""A parcel of what moves whole is closed once its tensors have this size (`framework.memory.layerwise`)."""


def aligned(size_bytes: int) -> int:
    return -(-size_bytes // ALIGNMENT_BYTES) * ALIGNMENT_BYTES


def granules(size_bytes: int) -> int:
    """Return the device bytes of one allocation."""
    return -(-size_bytes // GRANULE_BYTES) * GRANULE_BYTES


def layer_bytes(tensors: Iterable[int]) -> int:
    """Return the size of a layer's parcel from the bytes of its tensors, ties once."""
    return sum(aligned(size) for size in tensors)


def resident_bytes(tensors: Iterable[int]) -> int:
    """Return the device bytes of tensors that are allocated one by one, as `resident` does."""
    return sum(granules(size) for size in tensors)


def parcels(tensors: Iterable[int]) -> tuple[int, ...]:
    """Return the sizes of the parcels that hold `tensors`, in module order, where they move as a whole."""
    sizes: list[int] = []
    filled = CHUNK_BYTES
    for size in tensors:
        if filled >= CHUNK_BYTES:
            sizes.append(0)
            filled = 0
        sizes[-1] += aligned(size)
        filled += size
    return tuple(sizes)


def whole_bytes(tensors: Iterable[int], buffers: Iterable[int] = ()) -> int:
    """Return the device bytes of a component, or of what is outside its layers, that moves as a whole.

    Buffers have a parcel of their own, for they may be written back.
    """
    return sum(granules(size) for size in (*parcels(tensors), layer_bytes(buffers)))
