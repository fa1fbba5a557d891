"""Checks a named hardware profile before anybody reckons with it. No torch."""

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from framework.compose.schema import load_schema
from framework.errors import Problem

MAY_BE_NULL = ("defaults", "fp8_tflops")  # no fp8: the card has no such kernels


def hardware_problems(hardware: Mapping[str, Any], locate: Callable[[str], str]) -> Iterator[Problem]:
    """Yield what the profile lacks, and a reserve that leaves nothing of its memory.

    `hardware` has passed the schema: each value is null or of its kind.
    """
    for name in load_schema("hardware")["properties"]:
        if name not in MAY_BE_NULL and hardware.get(name) is None:
            yield _lacking(f"hardware.{name}", hardware, locate)
    for name, share in (hardware.get("efficiency") or {}).items():
        if share is None:
            yield _lacking(f"hardware.efficiency.{name}", hardware, locate)
    memory, reserve = hardware.get("memory_gib"), hardware.get("reserve_gib")
    if memory is not None and reserve is not None and memory <= reserve:
        key = "hardware.memory_gib"
        reason = f"{memory:g} GiB leave nothing beside hardware.reserve_gib, which is {reserve:g} GiB"
        yield Problem(key, reason, locate(key), "give more memory or set a smaller reserve")


def _lacking(key: str, hardware: Mapping[str, Any], locate: Callable[[str], str]) -> Problem:
    """A figure that is missing stands nowhere: the profile's name does."""
    name = hardware.get("name")
    of = f"profile '{name}'" if name else "a profile"
    return Problem(key, f"{of} needs a value", locate(key) or locate("hardware.name") or locate("hardware"))
