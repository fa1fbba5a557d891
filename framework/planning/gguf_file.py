"""What the header of a GGUF file says of its tensors: names, shapes, bytes. No torch, no gguf package."""

import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO

from framework.errors import LoadError
from framework.planning.tensors import Tensor

MAGIC = b"GGUF"
VERSIONS = (2, 3)
MOST_TENSORS, MOST_VALUES, MOST_CHARACTERS, MOST_DIMENSIONS = 1 << 20, 1 << 24, 1 << 24, 8
STRING, ARRAY = 8, 9
SCALARS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "B", 10: "Q", 11: "q", 12: "d"}
PACKED = "gguf-"
PLAIN = {0: "float32", 1: "float16"}
"""What is loaded as numbers, and cast; everything else stays as its bytes are, BF16 too."""
BLOCKS = {
    0: (1, 4), 1: (1, 2), 2: (32, 18), 3: (32, 20), 6: (32, 22), 7: (32, 24), 8: (32, 34), 10: (256, 84),
    11: (256, 110), 12: (256, 144), 13: (256, 176), 14: (256, 210), 15: (256, 292), 16: (256, 66), 17: (256, 74),
    18: (256, 98), 19: (256, 50), 20: (32, 18), 21: (256, 110), 22: (256, 82), 23: (256, 136), 24: (1, 1), 25: (1, 2),
    26: (1, 4), 27: (1, 8), 28: (1, 8), 29: (256, 56), 30: (1, 2),
}  # fmt: skip
"""By the number of a kind: how many weights a block has, and its bytes."""
RENAMED = {
    "double_blocks.": "transformer_blocks.",
    "single_blocks.": "single_transformer_blocks.",
    "joint_blocks.": "transformer_blocks.",
}
"""Block lists as the authors of a model call them, and as diffusers does: loading renames what is inside too."""


def read_gguf(path: Path) -> list[Tensor]:
    """Return the tensors of a file, in its order. Raises `LoadError` for a file that is none or is cut short."""
    try:
        with path.open("rb") as file:
            return [_renamed(tensor) for tensor in _tensors(file)]
    except (struct.error, ValueError, OverflowError, KeyError) as error:
        raise LoadError(f"'{path}' is no GGUF file that can be read: {error}") from None
    except OSError as error:
        raise LoadError(f"cannot read '{path}': {error.strerror or error}") from None


def is_packed(tensor: Tensor) -> bool:
    """Whether a tensor's bytes are those of a GGUF file."""
    return tensor.dtype.startswith(PACKED)


def _tensors(file: BinaryIO) -> Iterator[Tensor]:
    if file.read(4) != MAGIC:
        raise ValueError("it does not begin with GGUF")
    version, count, values = _unpack(file, "IQQ")
    if version not in VERSIONS:
        raise ValueError(f"version {version} is not known")
    if count > MOST_TENSORS or values > MOST_VALUES:
        raise ValueError(f"{count} tensors and {values} values are too many")
    for _ in range(values):
        _text(file)
        _skip(file, _unpack(file, "I")[0])
    for _ in range(count):
        yield _tensor(file)


def _tensor(file: BinaryIO) -> Tensor:
    name, (dimensions,) = _text(file), _unpack(file, "I")
    if dimensions > MOST_DIMENSIONS:
        raise ValueError(f"'{name}' has {dimensions} dimensions")
    shape = _unpack(file, "Q" * dimensions)[::-1]
    kind, _ = _unpack(file, "IQ")
    weights, size_bytes = BLOCKS[kind]
    elements = 1
    for size in shape:
        elements *= size
    return Tensor(name, shape, PLAIN.get(kind, f"{PACKED}{kind}"), elements // weights * size_bytes)


def _renamed(tensor: Tensor) -> Tensor:
    name = tensor.name.removeprefix("model.diffusion_model.")
    head = next((head for head in RENAMED if name.startswith(head)), "")
    return tensor.renamed(RENAMED[head] + name[len(head) :] if head else name)


def _skip(file: BinaryIO, kind: int) -> None:
    """Go past one value of the header."""
    if kind == STRING:
        _text(file)
    elif kind == ARRAY:
        inner, length = _unpack(file, "IQ")
        if length > MOST_VALUES or inner == ARRAY:
            raise ValueError("a list in its header is too long")
        if inner == STRING:
            for _ in range(length):
                _text(file)
        else:
            file.seek(length * struct.calcsize(f"<{SCALARS[inner]}"), 1)
    else:
        file.seek(struct.calcsize(f"<{SCALARS[kind]}"), 1)


def _text(file: BinaryIO) -> str:
    (length,) = _unpack(file, "Q")
    if length > MOST_CHARACTERS:
        raise ValueError("a text in its header is too long")
    return file.read(length).decode("utf-8", "replace")


def _unpack(file: BinaryIO, kinds: str) -> tuple[Any, ...]:
    layout = f"<{kinds}"
    return struct.unpack(layout, file.read(struct.calcsize(layout)))
