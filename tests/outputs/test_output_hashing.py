"""Hashes name a result: equal for equal values, different for any other shape, dtype or byte."""

import pytest
import torch
from output_desk import random_frames

from framework.outputs.hashing import config_sha256, frames_sha256
from framework.values import Frames


def test_the_hash_of_known_frames_never_changes() -> None:
    data = torch.arange(12, dtype=torch.float32).view(1, 1, 2, 2, 3)
    assert frames_sha256(Frames(data)) == "0c6c0ffe5b4a55ca3049275111bac92b930bfd76762aa29e6bafd5039f65c381"


def test_memory_layout_and_fps_do_not_count() -> None:
    frames = random_frames()
    strided = frames.data.permute(0, 1, 4, 2, 3).contiguous().permute(0, 1, 3, 4, 2)
    assert not strided.is_contiguous()
    assert frames_sha256(Frames(strided, fps=1)) == frames_sha256(frames)


def test_a_slice_that_stays_strided_when_flattened_has_the_hash_of_its_copy() -> None:
    pixel = random_frames().data[:, :1, :1, :1].permute(0, 1, 4, 2, 3)
    strided = torch.stack([pixel, pixel], -1)[..., 0].permute(0, 1, 3, 4, 2)
    assert frames_sha256(Frames(strided)) == frames_sha256(Frames(strided.clone(memory_format=torch.contiguous_format)))


@pytest.mark.parametrize(
    "change",
    [
        lambda data: data.view(1, 5, 48, 32, 3),
        lambda data: data.view(torch.int32),
        lambda data: torch.where(data == data.max(), data.max().nextafter(torch.tensor(2.0)), data),
    ],
    ids=["shape", "dtype", "one bit"],
)
def test_any_other_shape_dtype_or_byte_changes_the_hash(change) -> None:
    frames = random_frames()
    assert frames_sha256(Frames(change(frames.data))) != frames_sha256(frames)


def test_bfloat16_frames_have_a_hash() -> None:
    assert len(frames_sha256(Frames(random_frames().data.bfloat16()))) == 64


def test_the_order_of_keys_does_not_change_a_config_hash() -> None:
    assert config_sha256({"a": 1, "b": {"c": 2, "d": 3}}) == config_sha256({"b": {"d": 3, "c": 2}, "a": 1})
    assert config_sha256({"a": 1}) != config_sha256({"a": "1"})
