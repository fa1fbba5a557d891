"""One stored tensor as its header or a sheet tells it: name, shape, dtype, bytes. No torch."""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from math import prod
from typing import Any

FLOATING_BYTES = {
    "float64": 8,
    "float32": 4,
    "float16": 2,
    "bfloat16": 2,
    "float8_e4m3fn": 1,
    "float8_e5m2": 1,
}
_OTHER_BYTES = {"int64": 8, "int32": 4, "int16": 2, "int8": 1, "uint8": 1, "bool": 1, "uint16": 2, "uint32": 4}
ITEM_BYTES: Mapping[str, int] = {**FLOATING_BYTES, **_OTHER_BYTES}
_HEADER_NAMES = {
    "F64": "float64",
    "F32": "float32",
    "F16": "float16",
    "BF16": "bfloat16",
    "F8_E4M3": "float8_e4m3fn",
    "F8_E5M2": "float8_e5m2",
    "I64": "int64",
    "I32": "int32",
    "I16": "int16",
    "I8": "int8",
    "U8": "uint8",
    "U16": "uint16",
    "U32": "uint32",
    "BOOL": "bool",
}


@dataclass(frozen=True, slots=True)
class Tensor:
    """`dtype` is torch's name for it; where torch has none, the file's, and then `stored_bytes` is the only size."""

    name: str
    shape: tuple[int, ...]
    dtype: str
    stored_bytes: int = 0

    @property
    def size_bytes(self) -> int:
        width = ITEM_BYTES.get(self.dtype)
        return self.stored_bytes if width is None else prod(self.shape) * width

    @property
    def floating(self) -> bool:
        return self.dtype in FLOATING_BYTES

    def cast(self, dtype: str) -> "Tensor":
        """The same tensor in another dtype, if it is a floating one."""
        return Tensor(self.name, self.shape, dtype) if self.floating else self

    def renamed(self, name: str) -> "Tensor":
        return self if name == self.name else Tensor(name, self.shape, self.dtype, self.stored_bytes)


def from_header(header: Mapping[str, Mapping[str, Any]]) -> list[Tensor]:
    """Return the tensors of a safetensors header, in the order of their bytes."""
    entries = [(name, entry) for name, entry in header.items() if name != "__metadata__"]
    found = []
    for name, entry in sorted(entries, key=lambda pair: tuple(pair[1]["data_offsets"])):
        start, end = entry["data_offsets"]
        dtype = _HEADER_NAMES.get(entry["dtype"], entry["dtype"])
        found.append(Tensor(name, tuple(entry["shape"]), dtype, end - start))
    return found


def main_dtype(tensors: Iterable[Tensor]) -> str | None:
    """Return the floating dtype that most bytes have, None without floating tensors."""
    sizes: Counter[str] = Counter()
    for tensor in tensors:
        if tensor.floating:
            sizes[tensor.dtype] += tensor.size_bytes
    return max(sizes, key=lambda dtype: sizes[dtype]) if sizes else None
