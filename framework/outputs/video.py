"""Chooses the video writer before anything is loaded and writes mp4 by PyAV or animated WebP by Pillow. No torch."""

import importlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from framework.errors import ConfigError, did_you_mean
from framework.outputs.atomic import atomic_path
from framework.outputs.image import write_animation
from framework.outputs.json_text import to_json
from framework.registry import fold_name

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

CODECS = {"h264": "libx264", "mpeg4": "mpeg4"}
_BT709 = 1  # the number of BT.709 in FFmpeg's colour tables

Write = Callable[[Path, "NDArray[np.uint8]", int, Mapping[str, Any]], None]


@dataclass(frozen=True, slots=True)
class VideoWriter:
    """`write(path, pictures, fps, metadata)` takes pictures of shape `(frames, height, width, 3)`.

    `note` is one line for the user when this is not the writer that was asked for.
    """

    suffix: str
    write: Write
    needs_even_sides: bool = False
    note: str = ""


def find_video_writer(codec: str, quality: int | None) -> VideoWriter:
    """Return the writer for `output.video_codec`; raises `ConfigError` when this machine's PyAV lacks the codec.

    `quality` is 1 (smallest) to 100 (best), None for the codec's default.
    """
    if fold_name(codec) not in CODECS:
        raise ConfigError.of("output.video_codec", f"unknown codec '{codec}'", hint=did_you_mean(codec, CODECS))
    encoder = CODECS[fold_name(codec)]
    try:
        av = importlib.import_module("av")
    except ImportError as error:
        return _animated_webp(quality, error)
    if encoder not in av.codecs_available:
        able = [name for name, wanted in CODECS.items() if wanted in av.codecs_available]
        hint = f"choose from {', '.join(able)}" if able else "install another build of PyAV"
        raise ConfigError.of("output.video_codec", f"this PyAV has no encoder {encoder}", hint=hint)

    def write(path: Path, pictures: "NDArray[np.uint8]", fps: int, metadata: Mapping[str, Any]) -> None:
        write_mp4(path, pictures, fps, metadata, encoder, quality)

    return VideoWriter(".mp4", write, needs_even_sides=True)


def _animated_webp(quality: int | None, error: ImportError) -> VideoWriter:
    from PIL import features

    why = "PyAV is not installed" if isinstance(error, ModuleNotFoundError) else f"PyAV cannot be imported ({error})"
    remedy = "pip install 'framework[video]'"
    if not features.check("webp"):
        raise ConfigError.of("output.video_codec", f"{why} and this Pillow cannot write WebP", hint=remedy)

    def write(path: Path, pictures: "NDArray[np.uint8]", fps: int, metadata: Mapping[str, Any]) -> None:
        write_animation(path, list(pictures), fps, quality, metadata)

    note = f"{why}: videos are written as animated WebP instead of mp4; for mp4: {remedy}"
    return VideoWriter(".webp", write, note=note)


def write_mp4(
    path: Path,
    pictures: "NDArray[np.uint8]",
    fps: int,
    metadata: Mapping[str, Any],
    encoder: str = "libx264",
    quality: int | None = None,
) -> None:
    """Encode `(frames, height, width, 3)` pictures; `metadata` becomes the JSON comment of the file.

    4:2:0 video has even sides only: an odd side gets one more row or column, a copy of the last.
    """
    import av

    pictures = _with_even_sides(pictures)
    with atomic_path(path) as partial, av.open(partial, "w", format="mp4", options={"movflags": "faststart"}) as file:
        file.metadata["comment"] = to_json(metadata)
        stream = file.add_stream(encoder, rate=fps, options=_encoder_options(encoder, quality))
        stream.height, stream.width = pictures.shape[1:3]
        stream.pix_fmt = "yuv420p"
        context = stream.codec_context
        context.colorspace = context.color_primaries = context.color_trc = _BT709
        for picture in pictures:
            frame = av.VideoFrame.from_ndarray(picture, format="rgb24")
            frame = frame.reformat(format="yuv420p", dst_colorspace="ITU709")
            file.mux(stream.encode(frame))
        file.mux(stream.encode(None))


def _encoder_options(encoder: str, quality: int | None) -> dict[str, str]:
    """Translate 1 to 100 to the encoder's own scale, where less is better."""
    if encoder == "mpeg4":  # its default is a bit rate, too low for anything large; 3 of 2 to 31 is visually clean
        scale = "3" if quality is None else str(round(31 - 0.29 * quality))
        return {"qmin": scale, "qmax": scale}
    return {} if quality is None else {"crf": str(round(50 - 0.4 * quality))}  # 67 is x264's default of 23


def has_odd_side(pictures: "NDArray[np.uint8]") -> bool:
    """Whether height or width of `(frames, height, width, 3)` is odd."""
    return bool(pictures.shape[1] % 2 or pictures.shape[2] % 2)


def _with_even_sides(pictures: "NDArray[np.uint8]") -> "NDArray[np.uint8]":
    import numpy as np

    if not has_odd_side(pictures):
        return pictures
    height, width = pictures.shape[1:3]
    return np.pad(pictures, ((0, 0), (0, height % 2), (0, width % 2), (0, 0)), mode="edge")
