"""What compiling needs of a machine: for which devices there is a compiler, and what has to be installed. No torch."""

import importlib.util
import os
import shutil
from collections.abc import Iterator

from framework.errors import Problem

KEY = "numerics.compile"
OFF, BLOCKS = "off", "blocks"
DEVICES = ("cpu", "cuda", "mps")
CXX = ("g++", "clang++")
CC = ("gcc", "clang", "cc")


def compile_problems(mode: str, device: str | None = None, *, machine: bool = True) -> Iterator[Problem]:
    """Yield why `mode` cannot be had on `device` (its kind; None: unknown); with `machine`, what this one lacks."""
    if mode == OFF or device is None:
        return
    if device not in DEVICES:
        hint = f"set it to off; it compiles for {', '.join(DEVICES)}"
        yield Problem(KEY, f"there are no kernels to compile for {device}", hint=hint)
    elif machine and device == "cpu" and not _has_any(os.environ.get("CXX"), CXX):
        reason = "there is no C++ compiler, which torch needs to compile for the CPU"
        yield Problem(KEY, reason, hint=f"install {' or '.join(CXX)}, or set CXX")
    elif machine and device == "cuda" and importlib.util.find_spec("triton") is None:
        reason = "compiling for CUDA needs the package 'triton', which is not installed"
        yield Problem(KEY, reason, hint="pip install triton")
    elif machine and device == "cuda" and not _has_any(os.environ.get("CC"), CC):
        yield Problem(
            KEY, "there is no C compiler, which Triton needs", hint=f"install {' or '.join(CC[:2])}, or set CC"
        )


def _has_any(said: str | None, usual: tuple[str, ...]) -> bool:
    """Whether the compiler that the environment names, or one of the usual ones, is there."""
    return any(shutil.which(name) for name in ((said,) if said else usual))
