"""Where the jobs of a sweep run: places on devices, and the workers that are hired for them. No torch."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from framework.sweep.devices import Device
from framework.sweep.job import Job
from framework.sweep.process import End, WorkerProcess


class Worker(Protocol):
    """A process that runs one job after another, here or on a node; see `framework.sweep.process`."""

    ready: bool
    load_key: str | None

    def fileno(self) -> int: ...
    def send(self, message: Mapping[str, Any]) -> None: ...
    def read(self) -> tuple[list[dict[str, Any]], bool]: ...
    def interrupt(self) -> None: ...
    def kill(self) -> int: ...
    def kill_without_waiting(self) -> None: ...
    def close(self) -> int: ...
    def end(self) -> End: ...


class Host(Protocol):
    """Where workers come from."""

    def hire(self, device: Device, log: Path, share: int) -> Worker: ...
    def is_there(self, device: Device) -> bool: ...


@dataclass(frozen=True, slots=True)
class LocalHost:
    """This machine."""

    plugins: Sequence[str] = ()

    def hire(self, device: Device, log: Path, share: int) -> Worker:
        return WorkerProcess(device, log, self.plugins)

    def is_there(self, device: Device) -> bool:
        return True


@dataclass(slots=True)
class Place:
    """One place on a device: at most one worker, at most one job.

    `rests_until` is set where its node may be gone; `gone` once that is known.
    """

    number: int
    device: Device
    worker: Worker | None = None
    job: Job | None = None
    message: Mapping[str, Any] | None = None  # for a worker that is not ready to read it
    since: float = 0.0
    rests_until: float = 0.0
    gone: bool = False

    def takes(self, job: Job) -> bool:
        """Whether the job may run here: on its own device, and on a card that its plan fits."""
        return not self.gone and job.device_index in (None, self.device.index) and self.device.card not in job.unfit


def places_of(devices: Sequence[Device], jobs_per_device: int) -> list[Place]:
    """Return the places of a sweep: devices in turn, so that a few jobs spread over all of them."""
    pairs = [device for _ in range(jobs_per_device) for device in devices]
    return [Place(number, device) for number, device in enumerate(pairs)]
