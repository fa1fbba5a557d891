"""What a device can do, behind one small protocol. No torch until a platform is made."""

import importlib.util
from collections.abc import Mapping
from typing import Any

from framework.errors import ConfigError
from framework.platforms.protocol import MemoryFigures, Platform
from framework.registry import Registry

PLATFORMS: Registry[Any] = Registry(
    "platform",
    {
        "cuda": "framework.platforms.cuda:CudaPlatform",
        "mps": "framework.platforms.mps:MpsPlatform",
        "cpu": "framework.platforms.cpu:CpuPlatform",
        "sim": "framework.platforms.sim.platform:SimPlatform",
    },
    attributes=("kind", "copy_async", "reserve", "retire", "synchronize", "cap"),
)
register_platform = PLATFORMS.register

__all__ = ["PLATFORMS", "MemoryFigures", "Platform", "kind_of", "make_platform", "register_platform"]


def make_platform(device: str, hardware: Mapping[str, Any] | None = None) -> Platform:
    """Return the platform of `device`: `auto`, or a registered kind with an optional `:N`.

    `hardware` is the composed hardware profile; only `sim` reads it (None there: the RTX 4090). `auto` takes the first
    of cuda, mps and cpu that this machine has. Raises `ConfigError` for an unknown, malformed or absent device.
    """
    kind, colon, number = ("auto", "", "") if device == "auto" else device.partition(":")
    if colon and not number.isdecimal():
        raise ConfigError.of("device", f"'{device}' is not a device", hint="write a number after the colon: cuda:0")
    if kind == "auto":
        kind = kind_of(kind)
    platform: Platform = PLATFORMS.get(kind)(index=int(number or 0), hardware=hardware)
    return platform


def kind_of(device: str) -> str:
    """Return the kind of platform that `device` means; `auto` is the first of cuda, mps and cpu that is here."""
    kind = device.partition(":")[0]
    if kind != "auto":
        return kind
    if importlib.util.find_spec("torch") is None:
        return "cpu"
    import torch

    if torch.cuda.is_available():
        return "cuda"
    return "mps" if torch.backends.mps.is_available() else "cpu"
