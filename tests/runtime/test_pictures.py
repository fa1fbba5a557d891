"""Files into pictures, and whatever a pipeline returns into frames."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from framework.errors import ConfigError, StageError
from framework.runtime.pictures import frames_of, read_picture, read_video

PIXELS = torch.rand(2, 4, 6, 3)  # two pictures, height 4, width 6


def pil(pixels: torch.Tensor) -> Image.Image:
    return Image.fromarray((pixels * 255).round().to(torch.uint8).numpy())


@pytest.mark.parametrize(
    "images", [PIXELS.permute(0, 3, 1, 2), PIXELS.numpy(), [picture.permute(2, 0, 1) for picture in PIXELS]]
)
def test_pictures_of_every_sort_have_one_frame_each(images: Any) -> None:
    made = frames_of(SimpleNamespace(images=images))
    assert torch.equal(made.data, PIXELS.unsqueeze(1))


def test_pil_pictures_are_scaled_to_one() -> None:
    made = frames_of(SimpleNamespace(images=[pil(picture) for picture in PIXELS]))
    assert made.data.shape == (2, 1, 4, 6, 3)
    assert torch.allclose(made.data[:, 0], PIXELS, atol=0.5 / 255 + 1e-6)


@pytest.mark.parametrize(
    "video", [PIXELS.permute(0, 3, 1, 2).unsqueeze(0), PIXELS.unsqueeze(0).numpy(), PIXELS.permute(0, 3, 1, 2)]
)
def test_videos_keep_their_frames_and_their_rate(video: Any) -> None:
    made = frames_of(SimpleNamespace(frames=video), fps=8)
    assert torch.equal(made.data, PIXELS.unsqueeze(0))
    assert made.fps == 8


def test_lists_of_frames_are_videos() -> None:
    made = frames_of(SimpleNamespace(frames=[[pil(picture) for picture in PIXELS]]))
    assert made.data.shape == (1, 2, 4, 6, 3)


def test_grey_becomes_three_channels() -> None:
    made = frames_of(SimpleNamespace(images=[Image.new("L", (6, 4), 51)]))
    assert made.data.shape == (1, 1, 4, 6, 3)
    assert made.data.unique().tolist() == pytest.approx([0.2])


@pytest.mark.parametrize(
    ("output", "reason"),
    [
        (SimpleNamespace(images=torch.zeros(1, 4, 8, 8)), "pictures with 4 channels"),
        (SimpleNamespace(audios=[1]), "a SimpleNamespace, which holds neither pictures nor frames"),
        (SimpleNamespace(images=torch.zeros(1, 1, 1, 3, 8, 8)), r"shape \(1, 1, 1, 8, 8, 3\)"),
        (SimpleNamespace(images=[object()]), "a object where a picture was expected"),
    ],
)
def test_what_cannot_be_written_is_named(output: Any, reason: str) -> None:
    with pytest.raises(StageError, match=reason):
        frames_of(output)


def test_a_picture_is_read_upright_and_in_colour(tmp_path: Path) -> None:
    turned = Image.Exif()
    turned[0x0112] = 6  # a quarter turn, as phones write it
    Image.new("L", (4, 2), 7).save(tmp_path / "a.jpg", exif=turned)
    read = read_picture(str(tmp_path / "a.jpg"))
    assert (read.mode, read.size) == ("RGB", (2, 4))


@pytest.mark.parametrize("read", [read_picture, read_video])
def test_a_file_that_is_neither_is_named(read: Any, tmp_path: Path) -> None:
    (tmp_path / "text.png").write_text("no picture")
    with pytest.raises(ConfigError, match=r"^request\.mask: '.*text\.png' is no \w+ that can be read"):
        read(str(tmp_path / "text.png"), "request.mask")


def test_a_video_is_read_frame_by_frame(tmp_path: Path) -> None:
    av = pytest.importorskip("av")
    with av.open(str(tmp_path / "a.mp4"), "w") as container:
        stream = container.add_stream("mpeg4", rate=8)
        stream.width, stream.height, stream.pix_fmt = 32, 16, "yuv420p"
        for number in range(3):
            picture = np.full((16, 32, 3), 80 * number, np.uint8)
            container.mux(stream.encode(av.VideoFrame.from_ndarray(picture, format="rgb24")))
        container.mux(stream.encode())
    frames = read_video(str(tmp_path / "a.mp4"))
    assert [frame.size for frame in frames] == [(32, 16)] * 3
    assert [round(frame.getpixel((0, 0))[0] / 80) for frame in frames] == [0, 1, 2]
