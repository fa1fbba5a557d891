"""A machine as figures: what the planner reckons with and what `sim` imitates. No torch."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any

from framework.errors import ConfigError, did_you_mean
from framework.paths import CONF

GIB = 1024**3
DEFAULT_SIM_HARDWARE = "rtx_4090"


@dataclass(frozen=True, slots=True, kw_only=True)
class Efficiency:
    """The share of the peak rate that real kernels reach, above 0 and at most 1."""

    matmul: float = 1.0
    attention: float = 1.0
    conv: float = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class HardwareProfile:
    """One file of `conf/hardware`. Rates: dense TFLOP/s, and GB/s of 10^9 bytes; sizes in GiB.

    `overlap` is the share of a copy's time that kernels can run beside it (1: all of it); `reserve_gib` is what the
    driver, the context and a desktop hold; `launch_us` is the host's time for one kernel or copy.
    """

    name: str
    vendor: str
    memory_gib: float
    bf16_tflops: float
    fp32_tflops: float
    fp8_tflops: float | None
    memory_gbps: float
    h2d_pinned_gbps: float
    h2d_pageable_gbps: float
    d2h_gbps: float
    disk_gbps: float
    launch_us: float
    efficiency: Efficiency
    overlap: float
    host_ram_gib: float
    unified: bool
    reserve_gib: float
    source: str

    @property
    def capacity_bytes(self) -> int:
        """What tensors can have: the memory less the reserve."""
        return int((self.memory_gib - self.reserve_gib) * GIB)

    @classmethod
    def from_mapping(cls, values: Mapping[str, Any]) -> "HardwareProfile":
        """Build a profile from its YAML mapping; raises `ConfigError` for missing and unknown keys."""
        known = {field.name for field in fields(cls)}
        for key in values:
            if key not in known:
                raise ConfigError.of(f"hardware.{key}", "unknown key", hint=did_you_mean(key, known))
        missing = sorted(known - set(values))
        if missing:
            raise ConfigError.of(f"hardware.{missing[0]}", "is missing")
        return cls(**{**values, "efficiency": Efficiency(**values["efficiency"])})


def load_hardware(name: str) -> HardwareProfile:
    """Return the shipped profile `name`; raises `ConfigError` naming the closest one when there is none."""
    import yaml  # on use only: most commands never read a profile

    path = CONF / "hardware" / f"{name}.yaml"
    if not path.is_file():
        shipped = [file.stem for file in path.parent.glob("*.yaml") if file.stem != "auto"]
        raise ConfigError.of("hardware", f"there is no profile '{name}'", hint=did_you_mean(name, shipped))
    return HardwareProfile.from_mapping(yaml.safe_load(path.read_text(encoding="utf-8")))


def as_mapping(profile: HardwareProfile) -> dict[str, Any]:
    """Return what `HardwareProfile.from_mapping` takes."""
    return asdict(profile)
