"""The header of a GGUF file: tensors as the library writes them, names as diffusers has them, broken files by name."""

import struct
from pathlib import Path

import pytest

from framework.errors import LoadError
from framework.planning.gguf_file import BLOCKS, is_packed, read_gguf


def text(value: str) -> bytes:
    return struct.pack("<Q", len(value)) + value.encode()


def write(path: Path, *tensors: tuple[str, tuple[int, ...], int]) -> Path:
    """A header with values of several kinds, and the tensors `(name, shape, kind)`."""
    values = text("general.architecture") + struct.pack("<I", 8) + text("flux")
    values += text("a.number") + struct.pack("<If", 6, 1.5)
    values += text("a.list") + struct.pack("<IIQ3I", 9, 4, 3, 1, 2, 3)
    values += text("some.words") + struct.pack("<IIQ", 9, 8, 2) + text("one") + text("two")
    told = b"".join(
        text(name) + struct.pack(f"<I{len(shape)}QIQ", len(shape), *reversed(shape), kind, 0)
        for name, shape, kind in tensors
    )
    path.write_bytes(b"GGUF" + struct.pack("<IQQ", 3, len(tensors), 4) + values + told)
    return path


def test_tensors_have_their_bytes_and_the_names_of_diffusers(tmp_path: Path) -> None:
    file = write(
        tmp_path / "x.gguf",
        ("double_blocks.0.img_mod.lin.weight", (64, 256), 12),
        ("model.diffusion_model.single_blocks.3.linear1.bias", (64,), 0),
        ("img_in.weight", (4, 32), 30),
    )
    first, second, third = read_gguf(file)
    assert (first.name, first.shape, first.size_bytes) == (
        "transformer_blocks.0.img_mod.lin.weight",
        (64, 256),
        64 * 144,
    )
    assert (second.name, second.dtype, second.size_bytes) == (
        "single_transformer_blocks.3.linear1.bias",
        "float32",
        256,
    )
    assert (third.name, third.size_bytes, third.cast("float32").size_bytes) == ("img_in.weight", 256, 256)
    assert [is_packed(tensor) for tensor in (first, second, third)] == [True, False, True]


def test_the_kinds_are_those_of_the_library() -> None:
    gguf = pytest.importorskip("gguf")
    sizes = {int(kind): size for kind, size in gguf.GGML_QUANT_SIZES.items()}
    assert {kind: size for kind, size in sizes.items() if kind in BLOCKS} == BLOCKS


@pytest.mark.parametrize("cut", [0, 3, 10, 30, -5])
def test_a_file_that_is_cut_short_is_refused_by_name(tmp_path: Path, cut: int) -> None:
    file = write(tmp_path / "x.gguf", ("a.weight", (4, 32), 8))
    file.write_bytes(file.read_bytes()[:cut])
    with pytest.raises(LoadError, match=r"x\.gguf' is no GGUF file that can be read"):
        read_gguf(file)


def test_a_kind_that_nobody_knows_and_huge_counts_are_refused(tmp_path: Path) -> None:
    with pytest.raises(LoadError):
        read_gguf(write(tmp_path / "x.gguf", ("a.weight", (4, 32), 99)))
    huge = tmp_path / "huge.gguf"
    huge.write_bytes(b"GGUF" + struct.pack("<IQQ", 3, 2**40, 0))
    with pytest.raises(LoadError, match="are too many"):
        read_gguf(huge)
