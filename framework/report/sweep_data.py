"""What the report of a sweep is made from: its jobs, with what was foretold and measured of each. No torch."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

DONE = "done"
STATE = "state"
"""The axis that every sweep has: how its jobs ended."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Figures:
    """Seconds and bytes of one job; None for what is not known.

    `seconds` is the time of all its requests: of a simulated device its own time, where `virtual`. `expected_s` and
    `measured_s` are those of the first request's stages that have both.
    """

    seconds: float | None = None
    virtual: bool = False
    device_peak_bytes: int | None = None
    host_peak_bytes: int | None = None
    expected_s: float | None = None
    measured_s: float | None = None
    expected_peak_bytes: int | None = None
    measured_peak_bytes: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class JobData:
    """One job. `values` are texts by axis, `outputs` paths inside its folder `name`, `last_lines` those of its log."""

    number: int
    name: str
    status: str
    values: Mapping[str, str]
    device: str = ""
    attempts: int = 0
    took_s: float | None = None
    error: str | None = None
    figures: Figures = field(default_factory=Figures)
    outputs: Sequence[str] = ()
    last_lines: Sequence[str] = ()
    files: Sequence[str] = ()

    @property
    def title(self) -> str:
        """`job 7: seed=3, residency=minimal`."""
        values = ", ".join(f"{key}={value}" for key, value in self.values.items())
        return f"job {self.number}: {values}" if values else f"job {self.number}"


@dataclass(frozen=True, slots=True, kw_only=True)
class SweepData:
    """`axes` are the values of each axis in order, as texts; `counts` says how the jobs ended."""

    folder: Path
    jobs: Sequence[JobData]
    axes: Mapping[str, Sequence[str]]
    counts: str
    command: str
    created: str = ""
    version: str = ""

    @property
    def done(self) -> Sequence[JobData]:
        return [job for job in self.jobs if job.status == DONE]

    @property
    def by_device_memory(self) -> bool:
        """Whether jobs are told apart by their peak on the device, not on the host."""
        return any(job.figures.device_peak_bytes is not None for job in self.done)

    @property
    def virtual(self) -> bool:
        """Whether times are those of a simulated device."""
        return any(job.figures.virtual for job in self.done)

    def place(self, job: JobData) -> tuple[float, int] | None:
        """Return the seconds and bytes by which a done job is compared, None where one of them is not known.

        Times of a simulated device and of a process are never compared with each other.
        """
        own = job.figures
        peak = own.device_peak_bytes if self.by_device_memory else own.host_peak_bytes
        if job.status != DONE or own.seconds is None or peak is None or own.virtual != self.virtual:
            return None
        return own.seconds, peak

    def front(self) -> list[JobData]:
        """Return the jobs than which no other is both faster and smaller, the fastest first."""
        placed = sorted((place, job.number, job) for job in self.jobs if (place := self.place(job)))
        found: list[JobData] = []
        least = None
        for (_, peak), _, job in placed:
            if least is None or peak < least:
                found.append(job)
                least = peak
        return found
