"""Rates that were measured or learned, and the profile that they make of a shipped one. No torch."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from framework.platforms.hardware import Efficiency, HardwareProfile

FULL = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """What one device does. Rates: TFLOP/s that kernels reach, GB/s of 10^9 bytes; `launch_us` microseconds.

    None: not measured there, so the profile's figure stays. `overlap` is the share of a copy's time that kernels can
    run beside it. `spread` is by how much the slowest half of the timings was slower than the best one, `others_bytes`
    device memory that other processes hold, `spills`: the driver hands out more memory than the device has.
    """

    matmul_tflops: float | None = None
    fp32_tflops: float | None = None
    attention_tflops: float | None = None
    conv_tflops: float | None = None
    memory_gbps: float | None = None
    h2d_pinned_gbps: float | None = None
    h2d_pageable_gbps: float | None = None
    d2h_gbps: float | None = None
    disk_gbps: float | None = None
    launch_us: float | None = None
    overlap: float | None = None
    spread: float = 0.0
    others_bytes: int = 0
    spills: bool = False
    seconds: float = 0.0


RATES = (
    "matmul_tflops",
    "fp32_tflops",
    "attention_tflops",
    "conv_tflops",
    "memory_gbps",
    "h2d_pinned_gbps",
    "h2d_pageable_gbps",
    "d2h_gbps",
    "disk_gbps",
    "launch_us",
    "overlap",
)
PLAIN = RATES[4:]
"""Rates that a profile has under the same name."""


def rates_of_profile(profile: HardwareProfile) -> Measured:
    """Return what a measurement of a machine that is exactly `profile` finds."""
    shares = profile.efficiency
    return Measured(
        matmul_tflops=profile.bf16_tflops * shares.matmul,
        fp32_tflops=profile.fp32_tflops * shares.matmul,
        attention_tflops=profile.bf16_tflops * shares.attention,
        conv_tflops=profile.bf16_tflops * shares.conv,
        **{name: getattr(profile, name) for name in PLAIN},
    )


def measured_of(rates: Mapping[str, float]) -> Measured:
    """Return rates by name as what was measured. Raises `TypeError` for a name that is no rate."""
    values: dict[str, Any] = dict(rates)
    return Measured(**values)


def known_rates(measured: Measured) -> dict[str, float]:
    """Return the rates that are known, by name."""
    return {name: value for name in RATES if (value := getattr(measured, name)) is not None}


def laid_over(profile: HardwareProfile, measured: Measured, source: str) -> HardwareProfile:
    """Return `profile` with every rate that was measured; sizes and reserves stay.

    Peaks stay as they are and efficiencies change, unless a kernel was faster than the peak: then the peak is raised.
    """
    assumed = rates_of_profile(profile)
    found = {name: getattr(measured, name) for name in RATES}
    full = {name: getattr(assumed, name) if value is None else value for name, value in found.items()}
    single = measured.fp32_tflops
    halves = [full[f"{kind}_tflops"] for kind in ("matmul", "attention", "conv")]
    peak = max(profile.bf16_tflops, *halves)
    shares = Efficiency(**dict(zip(("matmul", "attention", "conv"), (rate / peak for rate in halves), strict=True)))
    raised, fp8 = peak / profile.bf16_tflops, profile.fp8_tflops
    return replace(
        profile,
        bf16_tflops=peak,
        fp32_tflops=profile.fp32_tflops * raised if single is None else single / shares.matmul,
        fp8_tflops=None if fp8 is None else fp8 * raised,
        efficiency=shares,
        source=source,
        **{name: full[name] for name in PLAIN},
    )


def compared(profile: HardwareProfile, measured: Measured) -> Iterator[tuple[str, float, float]]:
    """Yield (rate, assumed, measured) for each rate that was measured."""
    assumed = rates_of_profile(profile)
    for name in RATES:
        value = getattr(measured, name)
        if value is not None:
            yield name, getattr(assumed, name), value
