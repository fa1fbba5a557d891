"""Pictures from inside the loop: every layout of latents, and never the end of a run."""

from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from framework.errors import ConfigError
from framework.outputs.previews import PreviewSink, latent_picture, make_preview_sink, one_frame
from framework.runtime import events
from framework.spec import RequestSpec

REQUEST = RequestSpec(prompt="a", height=64, width=128)
VIDEO = RequestSpec(prompt="a", height=64, width=128, num_frames=9)


@pytest.mark.parametrize(
    ("shape", "request_", "expected"),
    [
        ((2, 4, 8, 16), REQUEST, (4, 8, 16)),
        ((1, 16, 3, 8, 16), VIDEO, (16, 8, 16)),
        ((1, 4 * 8, 64), REQUEST, (64, 4, 8)),  # packed as FLUX does
        ((1, 3 * 2 * 4, 128), VIDEO, (128, 2, 4)),  # packed as LTX does
        ((1, 25, 64), RequestSpec(prompt="a"), (64, 5, 5)),
    ],
)
def test_every_layout_of_latents_gives_one_frame(
    shape: tuple[int, ...], request_: RequestSpec, expected: tuple[int, ...]
) -> None:
    assert one_frame(torch.randn(shape, dtype=torch.bfloat16), request_).shape == expected


def test_the_strongest_direction_becomes_brightness() -> None:
    latents = np.zeros((16, 4, 4), dtype=np.float32)
    latents[5, :, 2:] = 3.0
    picture = latent_picture(latents).astype(int)
    assert picture.shape == (4, 4, 3)
    assert picture[:, 2:].min() > picture[:, :2].max()


def test_channels_fewer_than_colours_and_values_that_are_no_numbers_are_shown() -> None:
    assert latent_picture(np.full((1, 2, 2), np.nan, dtype=np.float32)).shape == (2, 2, 3)
    assert latent_picture(np.random.default_rng(1).normal(size=(2, 2, 2)).astype(np.float32)).shape == (2, 2, 3)


def heard(folder: Path, every: int, latents: object, num_steps: int = 5) -> list[events.Event]:
    told: list[events.Event] = []
    bus = events.EventBus(told.append)
    sink = PreviewSink(every, folder, bus, [REQUEST])
    for step in range(1, num_steps + 1):
        sink(events.StepDone(0, "denoise", step, num_steps, latents))
    return told


def test_every_so_many_steps_and_after_the_last_there_is_a_picture(tmp_path: Path) -> None:
    told = heard(tmp_path, 2, torch.randn(1, 4, 8, 16))
    assert [event.step for event in told if isinstance(event, events.PreviewSaved)] == [2, 4, 5]
    with Image.open(tmp_path / "previews" / "denoise-step002.png") as picture:
        assert picture.size == (256, 128)


def test_latents_of_an_unknown_kind_are_told_once_and_end_nothing(tmp_path: Path) -> None:
    told = heard(tmp_path, 1, torch.randn(3))
    assert len(told) == 1
    assert isinstance(told[0], events.Note)
    assert not (tmp_path / "previews").exists()


def test_a_config_that_says_nothing_has_no_previews(tmp_path: Path) -> None:
    bus = events.EventBus()
    assert make_preview_sink({}, tmp_path, bus, [REQUEST]) is None
    assert make_preview_sink({"preview": {"every_steps": None}}, tmp_path, bus, [REQUEST]) is None
    with pytest.raises(ConfigError, match=r"preview\.every_steps"):
        make_preview_sink({"preview": {"every_steps": 0}}, tmp_path, bus, [REQUEST])
