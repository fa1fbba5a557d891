"""The three things that take time while weights move: host, compute stream and copy stream. No torch.

start(i) = max(done(i-1), ready(i), launched(i)); copy(k) = max(copy(k-1), slot free, launched(k)). Rules and rounding
are those of the simulated device, so that it can check them.
"""

from framework.planning.rates import STAGING_BUFFERS, Rates

FOLLOWED = 3
"""Windows of one copy that are followed one by one, until host and bus have found their pace."""

PINNED, PAGEABLE, MAPPED, DEVICE = "pinned", "pageable", "mapped", "device"


class Clock:
    """Times in seconds since a use began; the `_s` sums say what was busy for how long."""

    __slots__ = (
        "_buffers",
        "_turn",
        "compute",
        "compute_s",
        "copy",
        "copy_s",
        "disk_s",
        "engine",
        "host",
        "host_s",
        "moved_bytes",
        "rates",
    )

    def __init__(self, rates: Rates) -> None:
        self.rates = rates
        self.host = self.compute = self.engine = self.copy = 0.0
        self.compute_s = self.copy_s = self.host_s = self.disk_s = 0.0
        self.moved_bytes = 0
        self._buffers = [0.0] * STAGING_BUFFERS
        self._turn = 0

    @property
    def now(self) -> float:
        """When everything put on so far is done."""
        return max(self.host, self.compute, self.copy)

    def run(self, seconds: float, launches: int) -> None:
        """Put `launches` kernels on the compute stream that take `seconds` together, each as long as the others."""
        begun, launch_s = self.host, self.rates.launch_s
        self.host = begun + launches * launch_s
        self.host_s += launches * launch_s
        self.compute_s += seconds
        start = self.compute if self.compute > self.engine else self.engine
        if launches:
            start = max(start + seconds, begun + launch_s + seconds, self.host + seconds / launches)
        self.compute = self.engine = start

    def send(self, size_bytes: int, tier: str, free: float = 0.0) -> float:
        """Put a copy to the device on the copy stream, not before `free`; return when it has arrived."""
        self.moved_bytes += size_bytes
        if tier == PINNED:
            return self._copy(size_bytes, free)
        read_s = self.rates.disk_s if tier == MAPPED else 0.0
        self.disk_s += size_bytes * read_s
        window = self.rates.staging_bytes
        if not window:
            return self._send_waiting(size_bytes, read_s, free)
        self.host_s += size_bytes * self.rates.stage_s
        whole, part = divmod(size_bytes, window)
        per_byte = self.rates.stage_s + read_s
        for _ in range(min(whole, FOLLOWED)):
            self._stage(window, per_byte, free)
        if whole > FOLLOWED:
            self._stage_more(whole - FOLLOWED, window, per_byte)
        if part:
            self._stage(part, per_byte, free)
        return self.copy

    def _send_waiting(self, size_bytes: int, read_s: float, free: float) -> float:
        """Copy without a buffer: the host waits until it is done."""
        rates = self.rates
        self.host += rates.launch_s
        seconds = size_bytes * (rates.pageable_s + read_s)
        start = max(self.copy, self.host, free)
        self.copy = self.host = start + seconds
        self.copy_s += seconds
        if rates.blocked:
            self.engine = max(self.engine, start) + seconds * rates.blocked
        return self.copy

    def _stage(self, size_bytes: int, per_byte: float, free: float) -> None:
        """Let the host fill a staging buffer, once it is free, and copy it from there."""
        self.host = max(self.host, self._buffers[self._turn]) + size_bytes * per_byte
        self._buffers[self._turn] = self._copy(size_bytes, free)
        self._turn = (self._turn + 1) % STAGING_BUFFERS

    def _stage_more(self, count: int, window: int, per_byte: float) -> None:
        """Later windows of a long copy: each takes as long as the slower of host and bus."""
        seconds = window * self.rates.pinned_s
        growth = count * max(window * per_byte + self.rates.launch_s, seconds)
        self.host += growth
        self.copy += growth
        self.copy_s += count * seconds
        self.engine += growth * self.rates.blocked
        self._buffers = [time + growth for time in self._buffers]

    def _copy(self, size_bytes: int, free: float) -> float:
        rates = self.rates
        self.host += rates.launch_s
        seconds = size_bytes * rates.pinned_s
        start = max(self.copy, self.host, free)
        self.copy = start + seconds
        self.copy_s += seconds
        if rates.blocked:
            self.engine = max(self.engine, start) + seconds * rates.blocked
        return self.copy

    def wait_for(self, ready: float) -> None:
        """Hold back later kernels until `ready`."""
        if ready > self.compute:
            self.compute = ready

    def let_compute_follow(self) -> None:
        self.wait_for(self.copy)

    def follow_compute(self) -> None:
        self.copy = max(self.copy, self.compute)

    def times(self) -> tuple[float, ...]:
        """Everything that grows from pass to pass, for the search of a period."""
        return (
            self.compute,
            self.host,
            self.copy,
            self.compute_s,
            self.copy_s,
            self.host_s,
            self.disk_s,
            float(self.moved_bytes),
        )

    def skip(self, growth: tuple[float, ...], count: int) -> float:
        """Let `count` passes go by that grow by `growth` each; return by how much compute has moved."""
        before = self.compute
        compute, host, copy = (growth[i] * count for i in range(3))
        self.host += host
        self.copy += copy
        self.compute = max(self.compute + compute, self.host if host > compute else 0.0)
        self.engine += self.compute - before
        self.compute_s += growth[3] * count
        self.copy_s += growth[4] * count
        self.host_s += growth[5] * count
        self.disk_s += growth[6] * count
        self.moved_bytes += round(growth[7] * count)
        moved = self.compute - before
        self._buffers = [time + copy for time in self._buffers]
        return moved
