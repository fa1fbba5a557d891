"""Which tensors lie in a mapped file."""

from pathlib import Path

import torch
from safetensors.torch import load_file, save_file

from framework.memory.mapped_files import MappedFiles


def test_views_of_a_safetensors_file_count_until_they_are_copied(tmp_path: Path) -> None:
    save_file({"one": torch.rand(700), "two": torch.rand(3)}, tmp_path / "a.safetensors")
    loaded = load_file(tmp_path / "a.safetensors")
    is_mapped = MappedFiles()
    is_mapped.refresh()
    assert is_mapped(loaded["one"])
    assert is_mapped(loaded["two"].view(torch.uint8))
    assert not is_mapped(loaded["one"].clone())
    assert not is_mapped(torch.empty(0))


def test_shared_and_locked_memory_is_no_file(tmp_path: Path) -> None:
    tensor = torch.rand(16)
    span = f"{tensor.data_ptr():x}-{tensor.data_ptr() + 64:x} rw-s 00000000 00:01 7 "
    for path, expected in (("/models/a.safetensors", True), ("/dev/nvidia0", False), ("[heap]", False), ("", False)):
        (tmp_path / "maps").write_text(span + path + "\n")
        is_mapped = MappedFiles(tmp_path / "maps")
        is_mapped.refresh()
        assert is_mapped(tensor) is expected


def test_without_a_list_every_tensor_may_be_mapped(tmp_path: Path) -> None:
    is_mapped = MappedFiles(tmp_path / "none")
    is_mapped.refresh()
    assert is_mapped(torch.rand(2))
