"""What is wrong with a machine, as its measurement shows. No torch."""

from collections.abc import Iterator

from framework.calibration.measured import Measured
from framework.platforms.hardware import GIB, HardwareProfile

LINK_SHARE = 0.7
"""Of what a link should give; below it, lanes or a generation are missing."""
DISTURBED = 0.3
"""Half of the timings were that much slower than the best one."""
OTHERS_GIB = 1.0
"""Beyond what a profile's reserve allows for."""


def flags_of(measured: Measured, profile: HardwareProfile, link_gbps: float | None = None) -> tuple[str, ...]:
    """Return a line for each thing that makes this device slower than it could be.

    `link_gbps` is what large copies reach on the best link that card and slot can do (None: what the profile says).
    """
    return tuple(_flags(measured, profile, link_gbps))


def _flags(measured: Measured, profile: HardwareProfile, link_gbps: float | None) -> Iterator[str]:
    pinned, expected = measured.h2d_pinned_gbps, link_gbps or profile.h2d_pinned_gbps
    if not profile.unified and pinned is not None and pinned < LINK_SHARE * expected:
        yield (
            f"downgraded link: pinned copies reach {pinned:.1f} GB/s where {expected:.1f} are usual; the slot may have "
            "fewer lanes or an older generation, or the link is saving power"
        )
    if measured.spills:
        yield (
            "spilling driver: it gives out more memory than the device has free and takes the rest from the host, "
            "which is many times slower; turn the system memory fallback off, or set budget.device"
        )
    others = measured.others_bytes / GIB
    if others > profile.reserve_gib + OTHERS_GIB:
        yield f"busy card: {others:.1f} GiB of {profile.memory_gib:g} GiB are taken by others"
    if measured.spread > DISTURBED:
        yield f"busy card: timings differ by {100 * measured.spread:.0f} %, so something else uses the device"
