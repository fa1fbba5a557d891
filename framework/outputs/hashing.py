"""Identities: hashes of frame tensors, files and configs. torch only where a tensor is at hand."""

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from framework.values import Frames


def frames_sha256(frames: Frames) -> str:
    """Hash shape, dtype and bytes of `frames.data`; equal on every device and for every memory layout."""
    import torch

    data = frames.data.detach().cpu().contiguous()
    digest = hashlib.sha256(f"{tuple(data.shape)} {str(data.dtype).removeprefix('torch.')}\n".encode())
    digest.update(data.reshape(-1).view(torch.uint8).numpy().data)
    return digest.hexdigest()


def file_sha256(path: Path) -> str:
    """Hash the bytes of a file."""
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def config_sha256(config: Mapping[str, Any]) -> str:
    """Hash a plain config; the order of its keys does not count."""
    text = json.dumps(config, sort_keys=True, ensure_ascii=False, separators=(",", ":"), default=str)
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()
