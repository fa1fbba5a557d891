"""What lands in a run folder: files, metadata, events, and what is kept when a writer fails (US-05)."""

import hashlib
import json
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import av
import numpy as np
import pytest
import torch
from output_desk import REQUEST, Desk, random_frames
from PIL import Image
from safetensors import safe_open

from framework.errors import ConfigError, Interrupted, OutputError
from framework.outputs import video, writer
from framework.outputs.frames import needed_bytes, to_pictures
from framework.outputs.hashing import frames_sha256
from framework.runtime import events
from framework.spec import OutputSpec, RequestSpec
from framework.values import Frames

Save = Callable[..., Desk]


def read_mp4(path: Path) -> tuple[np.ndarray, dict[str, Any], float, str]:
    """Return decoded pictures, the JSON comment, frames a second and the codec's name."""
    with av.open(str(path)) as file:
        stream = file.streams.video[0]
        pictures = np.stack([frame.to_ndarray(format="rgb24") for frame in file.decode(video=0)])
        return pictures, json.loads(file.metadata["comment"]), float(stream.average_rate), stream.codec_context.name


@pytest.mark.parametrize("codec", ["h264", "mpeg4"])
def test_a_video_holds_every_frame_at_its_rate_with_its_request(save: Save, codec: str) -> None:
    desk = save(video_codec=codec)
    pictures, metadata, rate, name = read_mp4(desk.folder / "video.mp4")
    assert (pictures.shape, rate, name) == ((5, 32, 48, 3), 8, codec)
    assert metadata["request"]["prompt"] == REQUEST.prompt
    assert (metadata["seed"], metadata["config_sha256"]) == (100, "c0ffee")


def test_colours_survive_the_video(save: Save) -> None:
    data = torch.zeros(1, 5, 32, 48, 3)
    data[..., :24, :] = torch.tensor([0.9, 0.1, 0.2])
    data[..., 24:, :] = torch.tensor([0.1, 0.4, 0.8])
    desk = save(Frames(data, 8), quality=95)
    pictures = read_mp4(desk.folder / "video.mp4")[0]
    assert np.abs(pictures[2, 16, 8].astype(int) - [230, 26, 51]).max() <= 4
    assert np.abs(pictures[2, 16, 40].astype(int) - [26, 102, 204]).max() <= 4


def test_frames_come_in_order(save: Save) -> None:
    data = torch.linspace(0, 1, 5).view(1, 5, 1, 1, 1).expand(1, 5, 32, 48, 3)
    pictures = read_mp4(save(Frames(data, 8)).folder / "video.mp4")[0]
    assert np.all(np.diff(pictures.mean((1, 2, 3))) > 40)


def test_better_quality_makes_a_larger_file(save: Save) -> None:
    sizes = []
    for quality in (20, 90):
        desk = save(quality=quality, sheet=False)
        sizes.append((desk.folder / "video.mp4").stat().st_size)
    assert sizes[0] * 2 < sizes[1]


def test_an_odd_side_is_padded_and_said(save: Save) -> None:
    desk = save(random_frames(height=31, width=47))
    assert read_mp4(desk.folder / "video.mp4")[0].shape == (5, 32, 48, 3)
    assert "odd side" in desk.notes()


def test_every_file_is_announced_with_its_hashes(save: Save) -> None:
    frames = random_frames()
    desk = save(frames)
    saved = desk.of(events.OutputSaved)
    assert [Path(event.path).name for event in saved] == ["video.mp4", "sheet.png"]
    for event in saved:
        assert event.sha256 == hashlib.sha256(Path(event.path).read_bytes()).hexdigest()
        assert event.frames_sha256 == frames_sha256(frames)


def test_several_outputs_get_one_file_and_one_hash_each(save: Save) -> None:
    frames = random_frames(outputs=2)
    desk = save(frames, replace(REQUEST, num_outputs=2))
    assert desk.names() == ["sheet.png", "video-0.mp4", "video-1.mp4"]
    assert read_mp4(desk.folder / "video-1.mp4")[1]["seed"] == 101
    hashes = [event.frames_sha256 for event in desk.of(events.OutputSaved)]
    assert hashes == [frames_sha256(Frames(frames.data[i : i + 1])) for i in (0, 1)] + [frames_sha256(frames)]


def test_several_requests_do_not_share_a_file(desk: Desk) -> None:
    written = desk.writer(OutputSpec(sheet=False), REQUEST, REQUEST)
    written.save(random_frames(), 0)
    written.save(random_frames(), 1)
    assert desk.names() == ["video-000.mp4", "video-001.mp4"]


@pytest.mark.parametrize(("image_format", "suffix"), [("png", ".png"), ("webp", ".webp"), ("jpeg", ".jpg")])
def test_a_single_frame_becomes_a_picture_with_its_request(save: Save, image_format: str, suffix: str) -> None:
    frames = random_frames(frames=1)
    desk = save(frames, replace(REQUEST, num_frames=1), image_format=image_format)
    assert desk.names() == [f"image{suffix}"]
    with Image.open(desk.folder / f"image{suffix}") as picture:
        text = picture.text["Comment"] if suffix == ".png" else picture.getexif()[0x010E]
        assert picture.size == (48, 32)
    assert json.loads(text)["request"]["prompt"] == REQUEST.prompt


def test_a_png_holds_the_rounded_frame_exactly(save: Save) -> None:
    frames = random_frames(frames=1)
    desk = save(frames, replace(REQUEST, num_frames=1))
    with Image.open(desk.folder / "image.png") as picture:
        assert np.array_equal(np.asarray(picture), (frames.data[0, 0].numpy() * 255).round().astype(np.uint8))


def test_values_outside_the_range_are_clamped_not_wrapped() -> None:
    pictures = to_pictures(Frames(torch.tensor([-0.5, 0.5, 1.5]).view(1, 1, 1, 1, 3)))
    assert pictures.flatten().tolist() == [0, 128, 255]


def test_the_sheet_shows_each_clip_in_a_row_and_carries_the_request(save: Save) -> None:
    desk = save(random_frames(outputs=2), replace(REQUEST, num_outputs=2))
    with Image.open(desk.folder / "sheet.png") as sheet:
        metadata = json.loads(sheet.text["Comment"])
        assert sheet.width > 5 * 48
        assert sheet.height > 2 * 32
    assert metadata["seed"] == [100, 101]
    assert metadata["config_sha256"] == "c0ffee"


def test_the_sheet_can_be_left_out(save: Save) -> None:
    assert save(sheet=False).names() == ["video.mp4"]


def test_without_pyav_an_animated_webp_is_written_and_one_line_says_so(
    save: Save, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "av", None)
    desk = save()
    with Image.open(desk.folder / "video.webp") as picture:
        assert picture.n_frames == 5
        assert json.loads(picture.getexif()[0x010E])["request"]["prompt"] == REQUEST.prompt
        picture.seek(1)
        picture.load()
        assert picture.info["duration"] == 125
    assert len(desk.of(events.Note)) == 1
    assert "animated WebP" in desk.notes()
    assert "pip install" in desk.notes()


def test_the_missing_writer_is_said_before_anything_is_saved(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "av", None)
    desk.writer(OutputSpec())
    assert "animated WebP" in desk.notes()


def test_no_writer_at_all_is_refused_at_construction(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "av", None)
    monkeypatch.setattr("PIL.features.check", lambda feature: feature != "webp")
    with pytest.raises(ConfigError, match=r"output\.video_codec: PyAV is not installed and this Pillow"):
        desk.writer(OutputSpec())


def test_a_codec_this_pyav_lacks_is_refused_naming_one_it_has(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(av, "codecs_available", {"mpeg4"})
    with pytest.raises(ConfigError, match="no encoder libx264; choose from mpeg4"):
        desk.writer(OutputSpec())


@pytest.mark.parametrize(
    ("output", "line"),
    [
        ({"video_codec": "h246"}, "output.video_codec: unknown codec 'h246'; did you mean 'h264'?"),
        ({"image_format": "pgn"}, "output.image_format: unknown image format 'pgn'; did you mean 'png'?"),
        ({"quality": 0}, "output.quality: 0 is not between 1 (smallest file) and 100 (best picture)"),
    ],
)
def test_a_wrong_setting_is_refused_before_loading(desk: Desk, output: dict[str, Any], line: str) -> None:
    with pytest.raises(ConfigError) as caught:
        desk.writer(replace(OutputSpec(), **output))
    assert str(caught.value) == line


def test_a_picture_run_does_not_ask_for_a_video_writer(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "av", None)
    desk.writer(OutputSpec(), RequestSpec(prompt="x", num_frames=1))
    assert desk.heard == []


def fail_half_way(monkeypatch: pytest.MonkeyPatch, error: BaseException) -> None:
    """Let the encoder give out at the third frame."""
    convert, calls = av.VideoFrame.from_ndarray, []

    class Frame:
        @staticmethod
        def from_ndarray(picture: np.ndarray, format: str) -> av.VideoFrame:
            calls.append(1)
            if len(calls) == 3:
                raise error
            return convert(picture, format=format)

    monkeypatch.setattr(av, "VideoFrame", Frame)


def test_a_writer_that_fails_half_way_keeps_the_frames_and_no_partial_file(
    save: Save, desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    frames = random_frames()
    fail_half_way(monkeypatch, OSError(28, "No space left on device"))
    with pytest.raises(OutputError, match=r"No space left on device; the frames are kept in .*safetensors") as caught:
        save(frames)
    assert caught.value.exit_code == 4
    assert desk.names() == ["request.frames.safetensors"]
    with safe_open(desk.folder / "request.frames.safetensors", "pt") as kept:
        assert torch.equal(kept.get_tensor("frames"), frames.data)
        assert kept.metadata() == {"fps": "8"}
    assert desk.of(events.OutputSaved)[0].frames_sha256 == frames_sha256(frames)


@pytest.mark.parametrize("stop", [KeyboardInterrupt(), Interrupted("interrupted")])
def test_an_interrupt_while_writing_keeps_the_frames_and_stays_an_interrupt(
    save: Save, desk: Desk, monkeypatch: pytest.MonkeyPatch, stop: BaseException
) -> None:
    fail_half_way(monkeypatch, stop)
    with pytest.raises(type(stop)):
        save()
    assert desk.names() == ["request.frames.safetensors"]
    assert "kept in" in desk.notes()


def test_a_failing_sheet_leaves_the_finished_video(save: Save, desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise MemoryError

    monkeypatch.setattr(writer, "draw_sheet", refuse)
    with pytest.raises(OutputError, match="MemoryError; the frames are kept"):
        save()
    assert desk.names() == ["request.frames.safetensors", "video.mp4"]


def test_when_nothing_can_be_kept_both_reasons_are_said(
    save: Save, desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise OSError("disk gone")

    monkeypatch.setattr(video, "atomic_path", refuse)
    monkeypatch.setattr(writer, "save_frames", refuse)
    with pytest.raises(OutputError, match="disk gone; the frames could not be kept either: OSError: disk gone"):
        save()
    assert desk.names() == []


def test_the_space_asked_for_covers_the_largest_request() -> None:
    large = replace(REQUEST, height=480, width=832, num_frames=81, num_outputs=2)
    assert needed_bytes([REQUEST, large]) > 2 * 81 * 480 * 832 * 3 * 4
    assert needed_bytes([]) > 0
