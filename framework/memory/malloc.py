"""Large host allocations that go back to the system when they are freed. No torch.

glibc learns from frees: after the first ones, blocks of up to 32 MiB come from its heap and stay there for good. So
weights that are cast while they are read and packed afterwards would be held twice.
"""

import ctypes
import sys
from collections.abc import Iterator
from contextlib import contextmanager

M_TRIM_THRESHOLD, M_MMAP_THRESHOLD = -1, -3  # of malloc.h
OWN_MAPPING_BYTES = 256 * 1024
LEARNT_BYTES = 32 * 1024**2  # what glibc's own learning ends at


@contextmanager
def returned_when_freed() -> Iterator[None]:
    """In the block every allocation of 256 KiB or more gets pages of its own. No effect without glibc."""
    set_option = _mallopt()
    if set_option is None:
        yield
        return
    set_option(M_MMAP_THRESHOLD, OWN_MAPPING_BYTES)
    try:
        yield
    finally:
        set_option(M_MMAP_THRESHOLD, LEARNT_BYTES)
        set_option(M_TRIM_THRESHOLD, 2 * LEARNT_BYTES)


def _mallopt() -> "ctypes._NamedFuncPointer | None":
    if not sys.platform.startswith("linux"):
        return None
    library = ctypes.CDLL(None)
    return library.mallopt if hasattr(library, "gnu_get_libc_version") else None
