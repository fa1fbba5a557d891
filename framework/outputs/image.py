"""Writes still and animated pictures by Pillow, with their request as metadata. No torch."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from framework.errors import ConfigError, did_you_mean
from framework.outputs.atomic import atomic_path
from framework.outputs.json_text import to_json
from framework.registry import fold_name

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray
    from PIL.Image import Image

METADATA_KEY = "Comment"  # the PNG keyword for it, and the tag that mp4 calls `comment`
IMAGE_SUFFIXES = {"png": ".png", "webp": ".webp", "jpeg": ".jpg", "jpg": ".jpg"}
_EXIF_IMAGE_DESCRIPTION = 0x010E


def find_image_suffix(image_format: str) -> str:
    """Return the file suffix for `output.image_format`; raises `ConfigError` when this Pillow cannot write it."""
    from PIL import features

    name = fold_name(image_format)
    if name not in IMAGE_SUFFIXES:
        reason = f"unknown image format '{image_format}'"
        raise ConfigError.of("output.image_format", reason, hint=did_you_mean(image_format, IMAGE_SUFFIXES))
    feature = {"png": "zlib", "webp": "webp"}.get(name, "jpg")
    if not features.check(feature):
        raise ConfigError.of("output.image_format", f"this Pillow cannot write {name}", hint="choose another format")
    return IMAGE_SUFFIXES[name]


def write_image(path: Path, picture: "Image", quality: int | None, metadata: Mapping[str, Any]) -> None:
    """Write one picture in the format of the suffix of `path`; `quality` is 1 to 100 and means nothing to PNG."""
    options: dict[str, Any] = {} if quality is None else {"quality": quality}
    with atomic_path(path) as partial:
        if path.suffix == ".png":
            picture.save(partial, pnginfo=_png_text(metadata))
        else:
            picture.save(partial, exif=_exif(metadata), **options)


def write_animation(
    path: Path, pictures: "Sequence[NDArray[np.uint8]]", fps: int, quality: int | None, metadata: Mapping[str, Any]
) -> None:
    """Write `(height, width, 3)` pictures as one endless animated WebP."""
    from PIL.Image import fromarray

    first, *rest = [fromarray(picture) for picture in pictures]
    options: dict[str, Any] = {"quality": 90 if quality is None else quality}
    with atomic_path(path) as partial:
        first.save(
            partial, save_all=True, append_images=rest, duration=_durations_ms(len(pictures), fps), loop=0,
            exif=_exif(metadata), minimize_size=False, **options,
        )  # fmt: skip


def _durations_ms(num_frames: int, fps: int) -> list[int]:
    """Whole milliseconds for each frame that do not drift from the true time."""
    ends = [round(1000 * (index + 1) / fps) for index in range(num_frames)]
    return [end - start for start, end in zip([0, *ends], ends, strict=False)]


def _png_text(metadata: Mapping[str, Any]) -> Any:
    from PIL.PngImagePlugin import PngInfo

    text = PngInfo()
    text.add_itxt(METADATA_KEY, to_json(metadata))
    return text


def _exif(metadata: Mapping[str, Any]) -> Any:
    from PIL.Image import Exif

    exif = Exif()
    exif[_EXIF_IMAGE_DESCRIPTION] = json.dumps(metadata)  # ASCII, as the tag demands
    return exif
