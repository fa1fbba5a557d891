"""Streams, events and the vector clocks that say what happened before what. No torch.

A clock maps a stream's number to how many of its operations are known to be done. The host has one too.
"""

from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    from framework.platforms.sim.world import Device

Clock: TypeAlias = dict[int, int]


def merge(clock: Clock, other: Clock) -> None:
    """Let `clock` know all that `other` knows."""
    for stream, sequence in other.items():
        if clock.get(stream, 0) < sequence:
            clock[stream] = sequence


class Event:
    """A point of a stream. Before it is recorded it is done."""

    __slots__ = ("clock", "stream", "time_s")

    def __init__(self) -> None:
        self.clock: Clock = {}
        self.time_s = 0.0
        self.stream: Stream | None = None

    def synchronize(self) -> None:
        if self.stream is not None:
            self.stream.device.world.host_wait(self.time_s, self.clock)

    def query(self) -> bool:
        return self.stream is None or self.stream.device.world.host_query(self.time_s, self.clock)

    def elapsed_time(self, other: "Event") -> float:
        """Virtual milliseconds from this event to `other`."""
        return (other.time_s - self.time_s) * 1e3


class Stream:
    """A queue of one simulated device: what is put on it runs in order, after the host has launched it."""

    __slots__ = ("clock", "device", "host_seen", "name", "number", "sequence", "time_s")

    def __init__(self, device: "Device", name: str = "") -> None:
        self.device = device
        self.number = device.world.next_stream_number()
        self.name = name or f"stream{self.number}"
        self.time_s = 0.0
        self.sequence = 0
        self.clock: Clock = {}
        self.host_seen = -1

    def record_event(self, event: Event | None = None) -> Event:
        event = event or Event()
        event.stream, event.time_s = self, self.time_s
        event.clock = {**self.clock, self.number: self.sequence}
        return event

    def wait_event(self, event: Event) -> None:
        if event.time_s > self.time_s:
            self.time_s = event.time_s
        merge(self.clock, event.clock)

    def wait_stream(self, stream: "Stream") -> None:
        self.wait_event(stream.record_event())

    def synchronize(self) -> None:
        self.record_event().synchronize()

    def query(self) -> bool:
        return self.record_event().query()

    def knows(self, number: int, sequence: int) -> bool:
        """Whether the next operation here comes after operation `sequence` of stream `number`."""
        return self.number == number or self.clock.get(number, 0) >= sequence

    def __repr__(self) -> str:
        return self.name
