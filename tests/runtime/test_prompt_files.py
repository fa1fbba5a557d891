"""Embeddings on disk: what one run encoded, the next one reads, and a damaged file is made again."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import spec_builders
import torch
from spec_builders import Recorder, request

from framework.runtime.events import Note, UseStarted
from framework.runtime.prompt_cache import PromptCache, PromptKey
from framework.runtime.prompt_files import PromptFiles
from framework.values import Embeddings

CPU = torch.device("cpu")
Named = Callable[[str], Any]


def key(text: str) -> PromptKey:
    return PromptKey(encoder=("one",), dtype="float32", template="flux", max_length=4, text=text)


def embeddings() -> Embeddings:
    return Embeddings({"prompt_embeds": [torch.ones(2), torch.zeros(3)], "pooled": torch.arange(4), "mask": None})


def assert_same(found: Any, wanted: Embeddings) -> None:
    assert isinstance(found, Embeddings)
    assert found.parts.keys() == wanted.parts.keys()
    for part, other in zip(found.parts["prompt_embeds"] or (), wanted.parts["prompt_embeds"] or (), strict=True):
        assert torch.equal(part, other)
    assert torch.equal(found.parts["pooled"], wanted.parts["pooled"])  # type: ignore[arg-type]
    assert found.parts["mask"] is None


def test_lists_masks_and_no_masks_come_back_from_disk_as_they_were(tmp_path: Path) -> None:
    PromptFiles(("cpu",), tmp_path).put(key("a"), embeddings())
    assert_same(PromptFiles(("cpu",), tmp_path).get(key("a")), embeddings())


def test_a_single_tensor_comes_back_with_dtype_and_values(tmp_path: Path) -> None:
    strided = torch.arange(6, dtype=torch.bfloat16).view(2, 3).T
    PromptFiles(("cpu",), tmp_path).put(key("a"), strided)
    found = PromptFiles(("cpu",), tmp_path).get(key("a"))
    assert isinstance(found, torch.Tensor)
    assert found.dtype == torch.bfloat16
    assert torch.equal(found, strided)


@pytest.mark.parametrize("changed", [PromptFiles, PromptKey])
def test_other_surroundings_and_other_texts_are_other_entries(tmp_path: Path, changed: type) -> None:
    PromptFiles(("cpu",), tmp_path).put(key("a"), torch.ones(2))
    other = PromptFiles(("cuda",), tmp_path) if changed is PromptFiles else PromptFiles(("cpu",), tmp_path)
    assert other.get(key("a" if changed is PromptFiles else "b")) is None


@pytest.mark.parametrize("damage", [b"", b"\x00" * 40, b'{"'])
def test_a_damaged_file_is_no_entry_and_is_written_anew(tmp_path: Path, damage: bytes) -> None:
    files = PromptFiles(("cpu",), tmp_path)
    files.put(key("a"), torch.ones(2))
    next(tmp_path.iterdir()).write_bytes(damage)
    assert files.get(key("a")) is None
    files.put(key("a"), torch.ones(2))
    assert torch.equal(files.get(key("a")), torch.ones(2))  # type: ignore[arg-type]


def test_no_text_is_written_in_clear(tmp_path: Path) -> None:
    PromptFiles(("cpu",), tmp_path).put(key("a very private wish"), torch.ones(2))
    stored = next(tmp_path.iterdir())
    assert b"private" not in stored.read_bytes() + stored.name.encode()


def test_the_longest_unread_files_go_first(tmp_path: Path) -> None:
    import os

    files = PromptFiles(("cpu",), tmp_path, capacity_bytes=2500)
    for second, text in enumerate("ab"):
        files.put(key(text), torch.ones(250))
        for file in tmp_path.iterdir():
            if file.stat().st_mtime > 1000:
                os.utime(file, (second + 1, second + 1))
    assert files.get(key("a")) is not None  # read last, so `b` is the older one now
    files.put(key("c"), torch.ones(250))
    assert files.get(key("b")) is None
    assert files.get(key("a")) is not None


def test_a_folder_that_cannot_be_written_costs_the_entry_only(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    files = PromptFiles(("cpu",), tmp_path / "file" / "prompts")
    files.put(key("a"), torch.ones(2))
    assert files.get(key("a")) is None


def test_memory_is_asked_first_and_filled_from_disk(tmp_path: Path) -> None:
    PromptFiles(("cpu",), tmp_path).put(key("a"), torch.ones(2))
    cache = PromptCache(files=PromptFiles(("cpu",), tmp_path))
    assert cache.get(key("a"), CPU) is not None
    next(tmp_path.iterdir()).unlink()
    assert cache.get(key("a"), CPU) is not None


@pytest.mark.parametrize("memory", [True, False])
def test_a_second_run_takes_the_embeddings_of_the_first(
    loaded_stores: Named, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, memory: bool
) -> None:
    monkeypatch.setenv("FRAMEWORK_CACHE", str(tmp_path))
    options = {"changes": {"prompt_cache_memory": memory, "prompt_cache_disk": True}}
    first, _ = spec_builders.run(loaded_stores("wan21"), request(), **options)
    second, recorder = spec_builders.run(loaded_stores("wan21"), request(), **options)
    assert _encoder_uses(recorder) == 0
    assert any("prompt cache" in note.text for note in recorder.of(Note))
    pictures = [result.requests[0].values["frames"].data for result in (first, second)]
    assert torch.equal(*pictures)


def _encoder_uses(recorder: Recorder) -> int:
    return sum(event.component == "text_encoder" for event in recorder.of(UseStarted))
