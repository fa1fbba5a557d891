"""Decoded frames as 8-bit pictures, and kept exactly when a writer fails. torch inside functions only."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from framework.outputs.atomic import atomic_path
from framework.spec import RequestSpec
from framework.values import Frames

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

FALLBACK_SUFFIX = ".frames.safetensors"
_VALUE_BYTES = 4  # float32
_RESERVE_BYTES = 16 * 2**20  # for log, record and temporary files


def needed_bytes(requests: Sequence[RequestSpec], copies: int = 1) -> int:
    """Return the free space a run should have before it starts: the largest request's frames, unencoded.

    `copies`: 2 where they are kept as the result of their stage too.
    """
    sizes = [
        request.num_outputs * (request.num_frames or 1) * (request.height or 0) * (request.width or 0)
        for request in requests
    ]
    return copies * max(sizes, default=0) * 3 * _VALUE_BYTES + _RESERVE_BYTES


def to_pictures(frames: Frames) -> "NDArray[np.uint8]":
    """Return the single output of `frames` as 8-bit `(frames, height, width, 3)`, rounded as diffusers does."""
    import torch

    scaled = frames.data[0].detach().float().mul(255).round_().clamp_(0, 255)
    pictures: NDArray[np.uint8] = scaled.to(device="cpu", dtype=torch.uint8).contiguous().numpy()
    return pictures


def save_frames(path: Path, frames: Frames) -> None:
    """Keep `frames` exactly, as a safetensors file with the tensor `frames` and `fps` in its metadata."""
    from safetensors.torch import save_file

    metadata = {} if frames.fps is None else {"fps": str(frames.fps)}
    with atomic_path(path) as partial:
        save_file({"frames": frames.data.detach().cpu().contiguous()}, str(partial), metadata)
