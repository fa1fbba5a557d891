"""What a machine does in a second, from its hardware profile: the same formulas as the simulated device. No torch."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache

from framework.planning.facts import Work
from framework.platforms.hardware import HardwareProfile

STAGING_BYTES = 32 * 1024**2
STAGING_BUFFERS = 2
"""Page-locked buffers that unpinned bytes pass through (`framework.memory.courier`)."""

HALF = ("float16", "bfloat16")


@dataclass(frozen=True, slots=True, kw_only=True)
class Rates:
    """Seconds a byte of each way to the device, FLOP a second by kind of kernel, and the host's time for a launch.

    `d2h_s` is a byte on the way back. `stage_s` is the host's own copying of a byte into a page-locked buffer, `disk_s`
    the reading of a mapped one. `blocked` is the share of a copy's time that it takes from kernels (1 - overlap),
    `staging_bytes` the size of a staging buffer; 0: there is none, and such copies go at `pageable_s` while the host
    waits.
    """

    memory_s: float
    pinned_s: float
    pageable_s: float
    d2h_s: float
    stage_s: float
    disk_s: float
    launch_s: float
    blocked: float
    half: Mapping[str, float]
    full: Mapping[str, float]
    quarter: Mapping[str, float]
    staging_bytes: int = STAGING_BYTES

    @classmethod
    def of(cls, profile: HardwareProfile) -> "Rates":
        """Copying into a staging buffer goes at the profile's pageable rate: that is what bounds such copies."""
        shares = profile.efficiency

        def flops(tflops: float) -> dict[str, float]:
            kinds = {"matmul": shares.matmul, "attention": shares.attention, "conv": shares.conv}
            return {kind: tflops * 1e12 * share for kind, share in kinds.items()}

        return cls(
            memory_s=1 / (profile.memory_gbps * 1e9),
            pinned_s=1 / (profile.h2d_pinned_gbps * 1e9),
            pageable_s=1 / (profile.h2d_pageable_gbps * 1e9),
            d2h_s=1 / (profile.d2h_gbps * 1e9),
            stage_s=1 / (profile.h2d_pageable_gbps * 1e9),
            disk_s=1 / (profile.disk_gbps * 1e9),
            launch_s=profile.launch_us * 1e-6,
            blocked=1 - profile.overlap,
            half=flops(profile.bf16_tflops),
            full=flops(profile.fp32_tflops),
            quarter=flops(profile.fp8_tflops or profile.bf16_tflops),
        )

    def peak(self, dtype: str) -> Mapping[str, float]:
        """FLOP a second of kernels on `dtype`; half rate stands in where the profile has no fp8 units."""
        if dtype in HALF:
            return self.half
        return self.quarter if dtype.startswith("float8") else self.full

    def kernel_seconds(self, work: Work) -> float:
        """Return the device's time for `work`: each kernel takes the longer of its arithmetic and its traffic."""
        peak = self.peak(work.dtype)
        if work.kernels:
            return sum(
                kernel.count
                * max(kernel.size_bytes * self.memory_s, kernel.flops / peak[kernel.kind] if kernel.kind else 0.0)
                for kernel in work.kernels
            )
        arithmetic = work.matmul_flops / peak["matmul"]
        arithmetic += work.attention_flops / peak["attention"] + work.conv_flops / peak["conv"]
        return max(arithmetic, work.touched_bytes * self.memory_s)


@lru_cache(maxsize=32)
def rates_of(profile: HardwareProfile) -> Rates:
    """Return the rates of a profile, worked out once."""
    return Rates.of(profile)
