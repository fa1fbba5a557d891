"""Facts of the machine and the installed versions, for the record. Imports none of the packages it names."""

import os
import platform
import sys
from collections.abc import Mapping
from importlib.metadata import PackageNotFoundError, version

from framework import __version__

PACKAGES = (
    "torch", "diffusers", "transformers", "accelerate", "safetensors", "hydra-core", "omegaconf", "numpy",
    "pillow", "av",
)  # fmt: skip


def installed_versions() -> dict[str, str | None]:
    """Return package -> version, None where it is not installed; `python` and ours, installed or not, among them."""
    found: dict[str, str | None] = {"python": platform.python_version(), "framework": __version__}
    for package in PACKAGES:
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            found[package] = None
    return found


def machine_facts() -> dict[str, str | int | None]:
    """Return system, processor and memory; no host, user or network name, since records are shared."""
    return {
        "system": platform.system(),
        "release": platform.release(),
        "architecture": platform.machine(),
        "num_cpus": os.cpu_count(),
        "memory_bytes": _memory_bytes(),
    }


def host_memory() -> Mapping[str, int]:
    """Return the process's peak of host memory in bytes; empty where the system does not tell."""
    try:
        import resource  # not on Windows
    except ImportError:
        return {}
    unit = 1 if sys.platform == "darwin" else 1024
    return {"host_peak_bytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit}


def _memory_bytes() -> int | None:
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, ValueError, OSError):
        return None
