"""Artifacts: every kind of value comes back bit for bit, files are whole or absent, and damage is found."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from framework.artifacts import files as artifacts
from framework.artifacts.files import About, BadArtifact, artifact_path, find_artifacts, load_artifact, save_artifact
from framework.artifacts.tensor_tree import CannotKeep, Damaged, put_together, take_apart
from framework.values import Condition, Embeddings, Frames, Latents

CPU = torch.device("cpu")
STATE = torch.Generator().manual_seed(3).get_state()
DTYPES = (torch.float32, torch.float16, torch.bfloat16, torch.float64, torch.int64, torch.uint8, torch.bool)
VALUES: dict[str, Any] = {
    "a tensor": torch.randn(2, 3),
    "one number": torch.tensor(1.5),
    "nothing in it": torch.empty(0, 4),
    "a list": [torch.randn(3), torch.randn(5)],
    "embeddings": Embeddings({"prompt_embeds": torch.randn(1, 4), "mask": None, "parts": [torch.ones(2)]}),
    "a condition": Condition({"prepare_latents": (torch.randn(2), None), "noise": torch.randn(1)}, (STATE, STATE)),
    "latents": Latents(torch.randn(1, 4, 2, 2), 32, 48, 9, (STATE,)),
    "frames": Frames(torch.rand(1, 2, 4, 4, 3), 16),
    "none": None,
    "odd floats": [float("inf"), 0.1, -0.0],
    "float8": torch.randn(4).to(torch.float8_e4m3fn),
    **{str(dtype): torch.tensor([0, 1, 1]).to(dtype) for dtype in DTYPES},
}


def same(one: Any, other: Any) -> bool:
    """Equal in kind, dtype, size, strides and bits."""
    if isinstance(one, torch.Tensor):
        alike = (one.dtype, one.shape, one.stride()) == (other.dtype, other.shape, other.stride())
        return alike and torch.equal(one.reshape(-1).view(torch.uint8), other.reshape(-1).view(torch.uint8))
    if isinstance(one, list | tuple):
        return type(one) is type(other) and len(one) == len(other) and all(map(same, one, other))
    if isinstance(one, dict):
        return list(one) == list(other) and all(same(one[key], other[key]) for key in one)
    if hasattr(one, "__dataclass_fields__"):
        return type(one) is type(other) and all(
            same(getattr(one, name), getattr(other, name)) for name in one.__dataclass_fields__
        )
    return type(one) is type(other) and repr(one) == repr(other)


def keep(folder: Path, values: dict[str, Any]) -> Path:
    return save_artifact(artifact_path(folder, About("denoise", 0), 1), About("denoise", 0), values).path


def test_every_kind_of_value_comes_back_bit_for_bit(tmp_path: Path) -> None:
    found = load_artifact(keep(tmp_path, VALUES), CPU)
    different = [name for name in VALUES if not same(VALUES[name], found[name])]
    assert list(found) == list(VALUES)
    assert not different


def test_memory_order_and_one_object_in_two_places_are_kept() -> None:
    last = torch.randn(1, 3, 4, 4).to(memory_format=torch.channels_last)
    tree, tensors = take_apart([last, last, last.permute(0, 2, 3, 1), last[:, :, ::2]])
    one, again, permuted, cut = put_together(tree, tensors, CPU)
    assert one is again
    assert one.stride() == last.stride()
    assert torch.equal(permuted, last.permute(0, 2, 3, 1))
    assert torch.equal(cut, last[:, :, ::2])


def test_arrays_and_numbers_of_numpy_stay_what_they_are() -> None:
    tree, tensors = take_apart({"array": np.arange(4.0), "number": np.float32(0.1)})
    found = put_together(json.loads(json.dumps(tree)), tensors, CPU)
    assert found["array"].dtype == np.float64
    assert type(found["number"]) is np.float32
    assert found["number"] == np.float32(0.1)


def test_what_is_no_data_is_named_with_its_place() -> None:
    with pytest.raises(CannotKeep, match=r"scheduler\.sampler is a object"):
        take_apart({"scheduler": {"sampler": object()}})


def test_a_random_generator_goes_on_where_it_was(tmp_path: Path) -> None:
    generator = torch.Generator().manual_seed(5)
    torch.randn(3, generator=generator)
    path = keep(tmp_path, {"state": generator.get_state()})
    expected = torch.randn(3, generator=generator)
    later = torch.Generator()
    later.set_state(load_artifact(path, CPU)["state"])
    assert torch.equal(torch.randn(3, generator=later), expected)


def test_names_say_stage_request_and_step(tmp_path: Path) -> None:
    assert artifact_path(tmp_path, About("denoise", 0), 1).name == "denoise.safetensors"
    assert artifact_path(tmp_path, About("denoise", 4, 12), 20).name == "denoise-004.step12.safetensors"
    assert artifact_path(tmp_path, About("../up", 0), 1).parent == tmp_path / "artifacts"


@pytest.mark.parametrize("position", [3, 300, -40])
def test_a_changed_byte_is_found(position: int, tmp_path: Path) -> None:
    path = keep(tmp_path, {"latents": torch.randn(64), "more": torch.randn(64)})
    content = bytearray(path.read_bytes())
    content[position] ^= 1
    path.write_bytes(content)
    with pytest.raises(BadArtifact):
        load_artifact(path, CPU)


def test_a_file_that_is_cut_short_is_found(tmp_path: Path) -> None:
    path = keep(tmp_path, {"latents": torch.randn(64)})
    path.write_bytes(path.read_bytes()[:-8])
    ((_, found),) = find_artifacts(tmp_path)
    assert isinstance(found, BadArtifact)


def test_another_file_in_its_place_is_told_by_the_hash_of_the_record(tmp_path: Path) -> None:
    saved = save_artifact(tmp_path / "one.safetensors", About("denoise", 0), {"latents": torch.zeros(2)})
    save_artifact(tmp_path / "one.safetensors", About("denoise", 0), {"latents": torch.ones(2)})
    with pytest.raises(BadArtifact, match="not the one in the record"):
        load_artifact(saved.path, CPU, saved.sha256)


def test_a_write_that_fails_leaves_the_old_file_and_no_rest(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = keep(tmp_path, {"latents": torch.zeros(2)})

    def full(*_: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(artifacts, "save_file", full)
    with pytest.raises(OSError, match="No space left"):
        keep(tmp_path, {"latents": torch.ones(2)})
    assert [file.name for file in path.parent.iterdir()] == [path.name]
    assert torch.equal(load_artifact(path, CPU)["latents"], torch.zeros(2))


@pytest.mark.parametrize(
    "tree",
    [
        {"value": "Path", "fields": {}},
        {"value": "Frames", "fields": {"unknown": 1}},
        {"tensor": "missing"},
        {"eval": "1"},
        {"tensor": "t0", "stride": [0]},
        {"tensor": "t0", "stride": [1, 10**9]},
    ],
)
def test_a_tree_from_somewhere_else_is_refused(tree: Any) -> None:
    with pytest.raises(Damaged):
        put_together(tree, {"t0": torch.zeros(2)}, CPU)


def test_a_tree_without_end_is_refused() -> None:
    tree: Any = 1
    for _ in range(100):
        tree = [tree]
    with pytest.raises(Damaged, match="deeply"):
        put_together(tree, {}, CPU)
