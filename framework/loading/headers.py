"""Sizes and dtypes of a component's weights, read from safetensors headers without a tensor. No torch."""

import json
import os
import struct
from collections import Counter
from pathlib import Path
from typing import Any

from framework.errors import LoadError
from framework.loading.chosen_files import chosen_weights
from framework.loading.source import PICKLE_SUFFIXES, SAFETENSORS

DTYPE_NAMES = {
    "F64": "float64",
    "F32": "float32",
    "F16": "float16",
    "BF16": "bfloat16",
    "F8_E4M3": "float8_e4m3fn",
    "F8_E5M2": "float8_e5m2",
}
ITEM_BYTES = {"float64": 8, "float32": 4, "float16": 2, "bfloat16": 2}
FLOAT8_NAMES = ("float8_e4m3fn", "float8_e5m2")
LARGEST_HEADER_BYTES = 100_000_000  # the limit of the format's own reader


def weight_files(folder: Path, variant: str | None = None) -> tuple[Path, ...]:
    """Return the safetensors files of a component, those of `variant` where it has any; none twice in two forms."""
    return tuple(folder / name for name in chosen_weights([file.name for file in folder.glob("*")], variant))


def pickle_files(folder: Path) -> tuple[Path, ...]:
    """Return the weight files that are pickles."""
    return tuple(sorted(file for file in folder.glob("*") if file.suffix in PICKLE_SUFFIXES))


def dtype_bytes(files: tuple[Path, ...]) -> Counter[str]:
    """Return how many bytes of `files` have which dtype; names are torch's, non-floating ones as in the file."""
    total: Counter[str] = Counter()
    for file in files:
        for name, entry in read_header(file).items():
            if name != "__metadata__":
                start, end = entry["data_offsets"]
                total[DTYPE_NAMES.get(entry["dtype"], entry["dtype"])] += end - start
    return total


def weight_bytes(files: tuple[Path, ...], dtype: str | None) -> int:
    """Return the bytes of all weights once floating ones are in `dtype` (None: as they are); 8-bit floats stay."""
    width = ITEM_BYTES.get(dtype or "")
    total = 0
    for name, size in dtype_bytes(files).items():
        own = ITEM_BYTES.get(name)
        total += size // own * width if own and width else size
    return total


def num_weights(files: tuple[Path, ...]) -> int:
    """Return the number of floating weights in the safetensors of `files`."""
    safe = tuple(file for file in files if file.suffix == SAFETENSORS)
    width = {**ITEM_BYTES, **dict.fromkeys(FLOAT8_NAMES, 1)}
    return sum(size // width[name] for name, size in dtype_bytes(safe).items() if name in width)


def own_dtype(files: tuple[Path, ...]) -> str | None:
    """Return the floating dtype that most bytes of a checkpoint have, None where there are no floating weights."""
    floating = {name: size for name, size in dtype_bytes(files).items() if name in DTYPE_NAMES.values()}
    return max(floating, key=lambda name: floating[name]) if floating else None


def tensor_names(file: Path) -> tuple[str, ...]:
    """Return the names of a safetensors file's tensors. Raises `LoadError` for a file that is none."""
    return tuple(name for name in read_header(file) if name != "__metadata__")


def read_header(file: Path) -> dict[str, dict[str, Any]]:
    """Return the header of a safetensors file. Raises `LoadError` naming the file for anything else, and for a file
    that ends before its last tensor."""
    try:
        with file.open("rb") as stream:
            size = os.fstat(stream.fileno()).st_size
            if size < 8:
                raise LoadError(_cut_short(file, "at least 8", size))
            (length,) = struct.unpack("<Q", stream.read(8))
            if length > LARGEST_HEADER_BYTES:
                raise ValueError(f"a header of {length} bytes")
            text = stream.read(length)
        if len(text) < length:
            raise LoadError(_cut_short(file, f"at least {8 + length}", size))
        header: dict[str, dict[str, Any]] = json.loads(text)
        expected = 8 + length + max((_end_of(entry) for entry in header.values()), default=0)
    except (OSError, ValueError, TypeError, AttributeError) as error:
        raise LoadError(f"{file}: not a safetensors file: {error}") from error
    if size < expected:
        raise LoadError(_cut_short(file, str(expected), size))
    return header


def _end_of(entry: dict[str, Any]) -> int:
    """Where the tensor of a header's entry ends, in bytes after the header; 0 for the entry of metadata."""
    return int(entry.get("data_offsets", (0, 0))[1])


def _cut_short(file: Path, expected: str, found: int) -> str:
    return f"{file}: the file is cut short: {expected} bytes are expected, {found} are there; fetch it again"
