"""Sizes and dtypes from safetensors headers alone."""

from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

from framework.errors import LoadError
from framework.loading.headers import dtype_bytes, num_weights, own_dtype, pickle_files, weight_files


def test_the_dtype_of_most_bytes_is_the_checkpoints_own(tmp_path: Path) -> None:
    tensors = {"a": torch.zeros(8, dtype=torch.bfloat16), "b": torch.zeros(3), "c": torch.zeros(9, dtype=torch.int64)}
    save_file(tensors, tmp_path / "model.safetensors")
    files = weight_files(tmp_path)
    assert dtype_bytes(files) == {"bfloat16": 16, "float32": 12, "I64": 72}
    assert own_dtype(files) == "bfloat16"
    assert own_dtype(()) is None


def test_a_variant_is_chosen_by_name_and_never_by_accident(tmp_path: Path) -> None:
    names = ["m-00001-of-00002.safetensors", "m-00002-of-00002.safetensors", "m.fp16.safetensors"]
    for name in names:
        save_file({"a": torch.zeros(1)}, tmp_path / name)
    assert [file.name for file in weight_files(tmp_path)] == names[:2]
    assert [file.name for file in weight_files(tmp_path, "fp16")] == names[2:]
    assert [file.name for file in weight_files(tmp_path, "other")] == names[:2]


def test_a_sharded_variant_is_found(tmp_path: Path) -> None:
    save_file({"a": torch.zeros(1)}, tmp_path / "m.fp16-00001-of-00001.safetensors")
    assert len(weight_files(tmp_path, "fp16")) == 1
    assert weight_files(tmp_path) == ()


@pytest.mark.parametrize("content", [b"\xff" * 16, (5).to_bytes(8, "little") + b"{bad}"])
def test_a_broken_file_is_named(tmp_path: Path, content: bytes) -> None:
    file = tmp_path / "model.safetensors"
    file.write_bytes(content)
    with pytest.raises(LoadError, match=r"model\.safetensors: not a safetensors file"):
        dtype_bytes((file,))


@pytest.mark.parametrize(
    ("kept", "expected"), [(-5, "{size}"), (-13, "{size}"), (40, r"at least \d+"), (0, "at least 8")]
)
def test_a_file_that_is_cut_short_is_named_with_both_sizes(tmp_path: Path, kept: int, expected: str) -> None:
    file = tmp_path / "model.safetensors"
    save_file({"a": torch.zeros(3), "b": torch.zeros(2)}, file, metadata={"format": "pt"})
    whole = file.read_bytes()
    file.write_bytes(whole[:kept])
    sizes = f"{expected.format(size=len(whole))} bytes are expected, {len(whole[:kept])} are there; fetch it again$"
    with pytest.raises(LoadError, match=rf"model\.safetensors: the file is cut short: {sizes}"):
        dtype_bytes((file,))


def test_pickles_are_told_by_their_suffix(tmp_path: Path) -> None:
    for name in ("a.bin", "b.ckpt", "c.pt", "d.safetensors", "config.json"):
        (tmp_path / name).touch()
    assert [file.name for file in pickle_files(tmp_path)] == ["a.bin", "b.ckpt", "c.pt"]


def test_weights_are_counted_whatever_their_width(tmp_path: Path) -> None:
    tensors = {"a": torch.zeros(8, dtype=torch.bfloat16), "b": torch.zeros(3), "c": torch.zeros(9, dtype=torch.int64)}
    save_file({**tensors, "d": torch.zeros(5).to(torch.float8_e4m3fn)}, tmp_path / "model.safetensors")
    assert num_weights(weight_files(tmp_path)) == 16
