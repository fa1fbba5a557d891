"""One simulated machine: devices, host clock, order, virtual time and the log of moves. Imports torch.

Device names are global in PyTorch, so one world is the current one; tensors of an earlier world may die at any time
but take part in nothing.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch

from framework.platforms.hardware import DEFAULT_SIM_HARDWARE, GIB, HardwareProfile, load_hardware
from framework.platforms.sim.block import Pending
from framework.platforms.sim.errors import SimRace
from framework.platforms.sim.faults import Faults
from framework.platforms.sim.ledger import Ledger, PinnedBuffer, PinnedPool
from framework.platforms.sim.streams import Clock, Stream, merge
from framework.spec import MAX_SIM_DEVICES

MAX_IN_FLIGHT = 256


@dataclass(frozen=True, slots=True)
class Move:
    """One copy over the bus. `direction` is h2d, d2h or p2p; labels are what `mark` said; times are virtual seconds."""

    direction: str
    size_bytes: int
    device: int
    stream: str
    start_s: float
    end_s: float
    component: str | None
    layer: str | int | None
    stage: str | None
    step: int | None


class Device:
    """One simulated accelerator: its memory, its streams, and when its engines are free again."""

    def __init__(self, world: "World", index: int, capacity_bytes: int) -> None:
        self.world, self.index, self.name = world, index, f"sim:{index}"
        self.torch_device = torch.device("sim", index)
        self.ledger = Ledger(self.name, capacity_bytes)
        self.streams: list[Stream] = []
        self.freed: Clock = {}  # by stream: where it was when memory allocated on it was last given back
        self.compute_free_s = 0.0
        self.link_free_s = {"h2d": 0.0, "d2h": 0.0, "p2p": 0.0}
        self.default = self.current = self.make_stream("default")

    def make_stream(self, name: str = "") -> Stream:
        stream = Stream(self, name)
        self.streams.append(stream)
        return stream

    def allocate(self, size_bytes: int) -> None:
        self.world.faults.on_allocate(self.ledger, size_bytes)
        self.ledger.take(size_bytes)

    def synchronize(self) -> None:
        for stream in self.streams:
            stream.synchronize()


class World:
    """The state of a simulated machine. Launch from one host thread: more would leave order and time to chance.

    `strict`: a race raises where it happens; else it is only noted and shows as NaN. `pinned_bytes` caps page-locked
    host memory (None: half of the host's), `capacity_bytes` each device (None: the profile's memory less its reserve).
    """

    def __init__(
        self,
        profile: HardwareProfile | None = None,
        *,
        num_devices: int = 1,
        capacity_bytes: int | None = None,
        pinned_bytes: int | None = None,
        strict: bool = True,
    ) -> None:
        self.profile = profile or load_hardware(DEFAULT_SIM_HARDWARE)
        self.strict = strict
        self.faults = Faults()
        self.races: list[str] = []
        self._deferred: list[str] = []
        self.moves: list[Move] = []
        self.labels: dict[str, Any] = {}
        self.num_kernels = 0
        self.on_kernel: Callable[[float, float], None] | None = None  # hears when each kernel ran, in virtual seconds
        self.host_s = 0.0
        self.host_clock: Clock = {}
        self.host_version = 0
        self._launch_s = self.profile.launch_us * 1e-6
        self._in_flight: list[Pending] = []
        self._num_streams = 0
        self.capacity_bytes = self.profile.capacity_bytes if capacity_bytes is None else capacity_bytes
        pinned_bytes = int(self.profile.host_ram_gib * GIB / 2) if pinned_bytes is None else pinned_bytes
        self.pinned = PinnedPool(pinned_bytes, self._check_unpinned)
        self.devices = [Device(self, index, self.capacity_bytes) for index in range(num_devices)]

    def device(self, index: int) -> Device:
        """Return device `index`, adding devices of the same profile up to it."""
        if not 0 <= index < MAX_SIM_DEVICES:
            raise RuntimeError(f"invalid device ordinal: sim:{index}; at most {MAX_SIM_DEVICES} can be simulated")
        while len(self.devices) <= index:
            self.devices.append(Device(self, len(self.devices), self.capacity_bytes))
        return self.devices[index]

    def next_stream_number(self) -> int:
        self._num_streams += 1
        return self._num_streams

    # --- order and time

    def launch(self, stream: Stream) -> None:
        """Put one more operation at the end of `stream`: it comes after all that the host knows to be done."""
        if self._deferred:
            self.check()
        self.host_s += self._launch_s
        if stream.host_seen != self.host_version:
            merge(stream.clock, self.host_clock)
            stream.host_seen = self.host_version
        stream.sequence += 1
        stream.clock[stream.number] = stream.sequence

    def run_kernel(self, stream: Stream, seconds: float) -> None:
        """Let the operation just launched take `seconds` of the device's compute engine."""
        self.num_kernels += 1
        device = stream.device
        start = max(stream.time_s, self.host_s, device.compute_free_s)
        stream.time_s = device.compute_free_s = start + seconds
        if self.on_kernel is not None:
            self.on_kernel(start, stream.time_s)

    def run_copy(self, stream: Stream, direction: str, size_bytes: int, gbps: float) -> None:
        """Let the copy just launched take its time of the bus, and log it."""
        seconds = size_bytes / (gbps * 1e9) * self.faults.link_slowdown
        device = stream.device
        start = max(stream.time_s, self.host_s, device.link_free_s[direction])
        stream.time_s = device.link_free_s[direction] = start + seconds
        # Where copies do not overlap kernels fully, the rest of their time is taken from the compute engine.
        blocked_s = seconds * (1 - self.profile.overlap)
        if blocked_s:
            device.compute_free_s = max(device.compute_free_s, start) + blocked_s
        get = self.labels.get
        self.moves.append(
            Move(
                direction,
                size_bytes,
                device.index,
                stream.name,
                start,
                stream.time_s,
                get("component"),
                get("layer"),
                get("stage"),
                get("step"),
            )
        )

    def host_wait(self, time_s: float, clock: Clock) -> None:
        """The host has waited for everything in `clock`; copies that are done arrive."""
        self.host_s = max(self.host_s, time_s)
        merge(self.host_clock, clock)
        self.host_version += 1
        if self._in_flight:
            self._arrive()
        if self._deferred:
            self.check()

    def host_query(self, time_s: float, clock: Clock) -> bool:
        """Whether the host finds everything in `clock` done; asking takes time, so that a polling loop ends."""
        self.host_s += self._launch_s
        done = time_s <= self.host_s
        if done:
            self.host_wait(time_s, clock)
        return done

    def add_in_flight(self, pending: Pending) -> None:
        self._in_flight.append(pending)
        if len(self._in_flight) > MAX_IN_FLIGHT:  # a loop that never lets the host wait: stop watching the oldest
            half = MAX_IN_FLIGHT // 2
            self._in_flight[:half] = [copy for copy in self._in_flight[:half] if not copy.landed]

    def _arrive(self) -> None:
        copies, self._in_flight = self._in_flight, []
        for copy in copies:
            if self.host_clock.get(copy.stream, 0) < copy.sequence:
                self._in_flight.append(copy)
                continue
            copy.land()
            check, copy.check = copy.check, None  # it holds on to the host's side of the copy
            if check is not None:
                check()

    def synchronize(self) -> None:
        """The host waits for every device."""
        for device in self.devices:
            device.synchronize()

    # --- races

    def report(self, text: str) -> None:
        """Note a race; raise it where the world is strict."""
        self.races.append(text)
        if self.strict:
            raise SimRace(text)

    def defer(self, text: str) -> None:
        """Note a race found by a destructor; the next operation or check raises it where the world is strict."""
        self.races.append(text)
        if self.strict:
            self._deferred.append(text)

    def check(self) -> None:
        """Raise the first race that a destructor found and nobody has seen yet."""
        deferred, self._deferred = self._deferred, []
        if deferred:
            raise SimRace(deferred[0])

    def forget_races(self) -> list[str]:
        """Return and clear the races noted so far: for tests that plant one."""
        races, self.races, self._deferred = self.races, [], []
        return races

    def _check_unpinned(self, buffer: PinnedBuffer) -> None:
        if buffer.kept:
            return
        for number, sequence in buffer.users.items():
            if self.host_clock.get(number, 0) < sequence:
                self.defer(f"{buffer.size_bytes} pinned bytes are freed while a copy on stream{number} may use them")

    # --- labels

    def mark(self, **labels: Any) -> None:
        """Set labels of the next moves; None takes one away."""
        for name, value in labels.items():
            if value is None:
                self.labels.pop(name, None)
            else:
                self.labels[name] = value


_worlds: list[World] = []  # at most one: PyTorch knows devices by name alone, so the current world is global


def start(world: World) -> World:
    """Make `world` the machine that the device name `sim` means from now on."""
    _worlds[:] = [world]
    return world


def current() -> World:
    """Return the current world, starting a default one when there is none."""
    return _worlds[0] if _worlds else start(World())


def device_of(device: Any) -> Device:
    """Return the simulated device of a number, a name, a torch.device or None (the first)."""
    index = device if isinstance(device, int) else getattr(device, "index", None)
    if isinstance(device, str):
        index = int(device.partition(":")[2] or 0)
    return current().device(index or 0)


@contextmanager
def use_stream(stream: Stream | None) -> Iterator[Stream | None]:
    """Launch kernels and torch's own copies on `stream` inside the block."""
    if stream is None:
        yield None
        return
    device = stream.device
    previous, device.current = device.current, stream
    try:
        yield stream
    finally:
        device.current = previous
