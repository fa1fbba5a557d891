"""Measures one device in under a minute: copies, kernels, launches, disk. Imports torch.

Every rate is a slope: the time of much less the time of little, so what a launch or a wait costs is in none of them.
On a simulated device times are virtual, and what is measured is its profile.
"""

import math
import os
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from statistics import median
from typing import TypeAlias

import torch
from torch import Tensor
from torch.nn.functional import conv2d, linear, scaled_dot_product_attention

from framework.calibration.measured import Measured
from framework.errors import PlanError
from framework.platforms.protocol import Platform, StreamHandle

MIB, GIB = 1024**2, 1024**3
ITEM_S = 2.5
"""Wall seconds after which one action is not repeated again; there are some twenty of them."""
LEAST_S = 1e-9
LONG_S = 0.03
"""A kernel this long is measured well."""
MOST_HALVES = 6

Kernel: TypeAlias = Callable[[], object]
Make: TypeAlias = "Callable[[Bench, int], tuple[float, Kernel]]"
"""Returns the FLOP of a kernel of some size, and the kernel."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sizes:
    """How much is measured: bytes of a copy, shapes of the kernels, bytes of the file; `little` and `much` are counts.

    Attention and convolutions are measured in `dtype`, what models have on such a device.
    `gate_bytes`: a copy that kernels wait for, so that a host slower than the kernels is not what is measured.
    """

    copy_bytes: int
    device_bytes: int
    rows: int
    width: int
    heads: int
    tokens: int
    channels: int
    pixels: int
    launches: int
    disk_bytes: int
    little: int = 1
    much: int = 3
    repeats: int = 5
    gate_bytes: int = 0
    dtype: torch.dtype = torch.bfloat16


SIM = Sizes(  # as little as arithmetic may be and yet take longer than its traffic, on any card
    copy_bytes=2 * MIB,
    device_bytes=16 * MIB,
    rows=640,
    width=640,
    heads=1,
    tokens=384,
    channels=64,
    pixels=32,
    launches=50,
    disk_bytes=0,
    repeats=1,
    gate_bytes=16 * MIB,
)
HOST = Sizes(
    copy_bytes=64 * MIB,
    device_bytes=64 * MIB,
    rows=1024,
    width=1024,
    heads=4,
    tokens=1024,
    channels=64,
    pixels=128,
    launches=2000,
    disk_bytes=256 * MIB,
    dtype=torch.float32,
)
CARD = Sizes(
    copy_bytes=128 * MIB,
    device_bytes=512 * MIB,
    rows=8192,
    width=4096,
    heads=24,
    tokens=4608,
    channels=512,
    pixels=128,
    launches=2000,
    disk_bytes=1024 * MIB,
    much=6,
)


def sizes_for(platform: Platform) -> Sizes:
    """Return how much is measured on a kind of device."""
    return {"sim": SIM, "cpu": HOST}.get(platform.kind, CARD)


@dataclass(slots=True)
class Bench:
    """A device with a clock: its own where it has one (virtual seconds), else the wall's."""

    platform: Platform
    sizes: Sizes
    spread: float = 0.0
    copies: StreamHandle = None
    clock: Callable[[], float] = time.perf_counter
    _gate: tuple[Tensor, Tensor] | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        self.copies = self.platform.make_stream("calibrate")
        self.clock = getattr(self.platform, "seconds", time.perf_counter)
        host = self.platform.allocate_pinned(self.sizes.gate_bytes) if self.sizes.gate_bytes else None
        if host is not None:
            self._gate = host, self.platform.reserve(self.sizes.gate_bytes)

    def tensor(self, *shape: int, dtype: torch.dtype = torch.bfloat16) -> Tensor:
        """Return device memory of that shape, written once."""
        size_bytes = math.prod(shape) * dtype.itemsize
        return self.platform.reserve(size_bytes).view(dtype).view(*shape).fill_(0.01)

    def seconds(self, action: Callable[[], None]) -> float:
        """Return the best time of `action`, from a device at rest until it is at rest again."""
        platform, times = self.platform, list[float]()
        if self.sizes.repeats > 1:
            action()  # what is chosen, compiled or made on first use
        began = time.perf_counter()
        while len(times) < self.sizes.repeats and (not times or time.perf_counter() - began < ITEM_S):
            platform.synchronize()
            start = self.clock()
            action()
            platform.synchronize()
            times.append(self.clock() - start)
        best = max(min(times), LEAST_S)
        if best > 1e-3:  # shorter ones are noise
            self.spread = max(self.spread, median(times) / best - 1)
        return best

    def hold_back(self) -> None:
        """Let the kernels launched next wait for a copy."""
        if self._gate is not None:
            host, memory = self._gate
            self.platform.copy_async(memory, host, self.copies)
            self.platform.wait_event(self.platform.current_stream(), self.platform.record_event(self.copies))

    def slope(self, action: Callable[[int], None], little: int, much: int) -> float:
        """Return the seconds of one more of what `action` does that many of."""
        more = self.seconds(lambda: action(much)) - self.seconds(lambda: action(little))
        return max(more, LEAST_S) / (much - little)

    def kernel_s(self, kernel: Kernel) -> float:
        """Return the device seconds of one kernel."""

        def repeat(count: int) -> None:
            self.hold_back()
            for _ in range(count):
                kernel()

        return self.slope(repeat, self.sizes.little, self.sizes.much)

    def tflops(self, make: Make, size: int) -> float:
        """Return the rate of a kernel at `size`, or at the largest half of it that takes long enough.

        A processor may take seconds for what a card does in no time.
        """
        own = size if self.sizes.repeats == 1 else max(1, size >> MOST_HALVES)
        while True:
            flops, kernel = make(self, own)
            if own >= size or self.once(kernel) > LONG_S:
                return flops / self.kernel_s(kernel) / 1e12
            own *= 2

    def once(self, kernel: Kernel) -> float:
        """Return the time of one kernel that has run before."""
        kernel()
        self.platform.synchronize()
        start = self.clock()
        kernel()
        self.platform.synchronize()
        return self.clock() - start

    def copy_gbps(self, dst: Tensor, src: Tensor) -> float:
        """Return the rate of copies between `src` and `dst`, both of bytes and one of them on the device."""
        platform = self.platform

        def send(parts: int) -> None:
            size = src.numel() * parts // 4
            platform.copy_async(dst[:size], src[:size], self.copies)

        return src.numel() / 4 / self.slope(send, 1, 4) / 1e9


def measure(platform: Platform, folder: Path | None = None, sizes: Sizes | None = None) -> Measured:
    """Measure `platform`; the disk is that of `folder` (None: not measured). Raises `PlanError` where memory lacks."""
    began = time.perf_counter()
    sizes = sizes or sizes_for(platform)
    memory = platform.memory()
    others = 0 if platform.unified else memory.total_bytes - memory.free_bytes - memory.allocated_bytes
    try:
        with torch.inference_mode():
            bench = Bench(platform, sizes)
            found = _copies(bench) | _kernels(bench) | {"launch_us": _launch_us(bench), "overlap": _overlap(bench)}
    except torch.OutOfMemoryError as error:
        raise PlanError(f"{platform.device} has too little free memory to be measured: {error}") from None
    platform.release_cache()
    return Measured(
        **found,
        disk_gbps=disk_gbps(folder, sizes.disk_bytes) if folder is not None and sizes.disk_bytes else None,
        spread=bench.spread,
        others_bytes=max(0, others),
        spills=spills(platform),
        seconds=time.perf_counter() - began,
    )


def _copies(bench: Bench) -> dict[str, float | None]:
    """Both ways with page-locked memory, to the device without."""
    platform, size = bench.platform, bench.sizes.copy_bytes
    device, pageable = platform.reserve(size).fill_(1), torch.ones(size, dtype=torch.uint8)
    pinned = platform.allocate_pinned(size) if platform.pins else None
    loose = bench.copy_gbps(device, pageable)
    if pinned is None:
        return {
            "h2d_pageable_gbps": loose,
            "h2d_pinned_gbps": None if platform.pins else loose,
            "d2h_gbps": bench.copy_gbps(pageable, device),
        }
    pinned.fill_(1)
    return {
        "h2d_pageable_gbps": loose,
        "h2d_pinned_gbps": bench.copy_gbps(device, pinned),
        "d2h_gbps": bench.copy_gbps(pinned, device),
    }


def _kernels(bench: Bench) -> dict[str, float | None]:
    """FLOP and bytes a second, at shapes that keep the device busy."""
    sizes = bench.sizes
    half = bench.tflops(partial(_product, sizes.width, torch.bfloat16), sizes.rows)
    full = bench.tflops(partial(_product, sizes.width, torch.float32), sizes.rows)
    as_half = 1.0 if sizes.dtype == torch.bfloat16 else half / full  # a profile has one share of the peak for both
    a, b = bench.tensor(sizes.device_bytes // 2), bench.tensor(sizes.device_bytes // 2)
    return {
        "matmul_tflops": half,
        "fp32_tflops": full,
        "attention_tflops": as_half * bench.tflops(partial(_attention, sizes.heads), sizes.tokens),
        "conv_tflops": as_half * bench.tflops(partial(_convolution, sizes.channels), sizes.pixels),
        "memory_gbps": 2 * sizes.device_bytes / bench.kernel_s(lambda: a.copy_(b)) / 1e9,
    }


def _product(width: int, dtype: torch.dtype, bench: Bench, rows: int) -> tuple[float, Kernel]:
    x, w = bench.tensor(rows, width, dtype=dtype), bench.tensor(width, width, dtype=dtype)
    return 2.0 * rows * width**2, lambda: linear(x, w)


def _attention(heads: int, bench: Bench, tokens: int) -> tuple[float, Kernel]:
    q = bench.tensor(1, heads, tokens, 128, dtype=bench.sizes.dtype)
    return 4.0 * heads * tokens**2 * 128, lambda: scaled_dot_product_attention(q, q, q)


def _convolution(channels: int, bench: Bench, pixels: int) -> tuple[float, Kernel]:
    dtype = bench.sizes.dtype
    image = bench.tensor(1, channels, pixels, pixels, dtype=dtype)
    weight = bench.tensor(channels, channels, 3, 3, dtype=dtype)
    return 18.0 * (channels * pixels) ** 2, lambda: conv2d(image, weight, padding=1)


def _launch_us(bench: Bench) -> float:
    """The time of one of many kernels that are shorter than their launch."""
    tiny = bench.tensor(16)

    def launch(count: int) -> None:
        for _ in range(count):
            tiny.add_(1)

    return bench.slope(launch, bench.sizes.launches, 5 * bench.sizes.launches) * 1e6


def _overlap(bench: Bench) -> float | None:
    """Return the share of a copy's time that kernels run beside it; None where there is one queue for all."""
    platform, size = bench.platform, bench.sizes.copy_bytes
    pinned = platform.allocate_pinned(2 * size) if platform.overlaps else None
    if pinned is None:
        return None
    device = platform.reserve(2 * size)
    a, b = bench.tensor(bench.sizes.device_bytes // 2), bench.tensor(bench.sizes.device_bytes // 2)
    copy_s = size / bench.copy_gbps(device, pinned) / 1e9
    count = math.ceil(3 * copy_s / bench.kernel_s(lambda: a.copy_(b)))

    def both(parts: int) -> None:
        bench.hold_back()
        platform.copy_async(device[: parts * size], pinned[: parts * size], bench.copies)
        for _ in range(count):
            a.copy_(b)

    taken = bench.slope(both, 1, 2)
    return round(min(1.0, max(0.0, 1 - taken / copy_s)), 4)


def spills(platform: Platform) -> bool:
    """Whether the driver gives out more memory than is free, which it then takes from the host, slowly."""
    if platform.unified:
        return False
    try:
        platform.reserve(platform.memory().free_bytes + GIB)
    except (torch.OutOfMemoryError, RuntimeError):
        return False
    finally:
        platform.release_cache()
    return True


def disk_gbps(folder: Path, size_bytes: int) -> float | None:
    """Return the rate of reading a file of `folder` that no cache holds; None where caches cannot be avoided."""
    if not hasattr(os, "posix_fadvise"):
        return None
    piece = os.urandom(8 * MIB)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder, buffering=0) as file:
            for _ in range(size_bytes // len(piece)):
                file.write(piece)
            os.fsync(file.fileno())
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
            file.seek(0)
            memory = bytearray(len(piece))
            start = time.perf_counter()
            read = 0
            while count := file.readinto(memory):
                read += count
            return read / max(time.perf_counter() - start, LEAST_S) / 1e9
    except OSError:  # no room, or a folder that cannot be written
        return None
