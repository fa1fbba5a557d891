"""Pictures into a pipeline and out of it: files to PIL images, what a call returns to `Frames`. Imports torch."""

from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from framework.errors import ConfigError, StageError
from framework.paths import expand
from framework.values import Frames

if TYPE_CHECKING:
    from PIL.Image import Image

CHANNELS = 3


def read_picture(file: str, key: str = "request.image") -> "Image":
    """Return a file as an upright RGB image. Raises `ConfigError` naming `key` for what is no picture."""
    from PIL import Image as images
    from PIL import ImageOps

    try:
        with images.open(expand(file)) as opened:
            return ImageOps.exif_transpose(opened).convert("RGB")
    except (OSError, ValueError, SyntaxError, images.DecompressionBombError) as error:
        raise ConfigError.of(key, f"'{file}' is no picture that can be read: {error}") from error


def read_video(file: str, key: str = "request.video") -> "list[Image]":
    """Return the frames of a file as RGB images. Raises `ConfigError` naming `key` for what is no video."""
    try:
        import av
    except ImportError as error:
        raise ConfigError.of(key, "reading a video needs PyAV", hint="install framework[video]") from error
    try:
        with av.open(str(expand(file))) as container:
            frames: list[Image] = [frame.to_image() for frame in container.decode(video=0)]
    except (OSError, ValueError, IndexError) as error:  # PyAV's errors are OSError and ValueError
        raise ConfigError.of(key, f"'{file}' is no video that can be read: {error}") from error
    return frames


def frames_of(output: Any, fps: int | None = None) -> Frames:
    """Turn what a pipeline returned into `Frames`: its `frames` or `images`, as tensors, arrays or PIL images.

    Tensors have channels before height, arrays after width, as in diffusers. Raises `StageError` for anything that is
    no picture with three channels, or one of grey.
    """
    is_video = getattr(output, "frames", None) is not None
    value = output.frames if is_video else getattr(output, "images", None)
    if value is None:
        raise StageError(f"the pipeline returned a {type(output).__name__}, which holds neither pictures nor frames")
    data = _stacked(value)
    if data.ndim == 4:
        data = data.unsqueeze(0 if is_video else 1)
    if data.ndim != 5:
        raise StageError(f"the pipeline returned pictures of shape {tuple(data.shape)}, which cannot be written")
    if data.shape[-1] == 1:
        data = data.expand(*data.shape[:-1], CHANNELS)
    if data.shape[-1] != CHANNELS:
        raise StageError(f"the pipeline returned pictures with {data.shape[-1]} channels; only 1 and 3 can be written")
    return Frames(data.float().cpu().contiguous(), fps)


def joined(parts: list[Frames]) -> Frames:
    """Return the outputs of several calls as those of one."""
    return parts[0] if len(parts) == 1 else Frames(torch.cat([part.data for part in parts]), parts[0].fps)


def _stacked(value: Any) -> Tensor:
    """Return pictures with channels last; lists become one more dimension in front."""
    if isinstance(value, list | tuple):
        return torch.stack([_stacked(item) for item in value])
    if isinstance(value, Tensor):
        return value.movedim(-3, -1)
    array = _array(value)
    return array.float() / 255 if array.dtype == torch.uint8 else array


def _array(value: Any) -> Tensor:
    """Return a numpy array or a PIL image as a tensor."""
    import numpy as np

    found = np.array(value)
    if found.dtype == object:
        raise StageError(f"the pipeline returned a {type(value).__name__} where a picture was expected")
    if found.ndim == 2:  # a grey PIL image
        found = found[:, :, None]
    return torch.from_numpy(found)
