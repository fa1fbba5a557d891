"""What a sweep as a whole is told: flags first, then the `sweep` group. No torch."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from framework.compose.arguments import Flags
from framework.compose.budget import read_bound
from framework.errors import ConfigError, did_you_mean

LOCAL, RAY = "local", "ray"
ENGINES = (LOCAL, RAY)
WARM, FRESH = "warm", "fresh"
WHERE = "from the command line"


@dataclass(frozen=True, slots=True)
class RaySettings:
    """The cluster: its `address`, None to start one here, and the host memory that each place asks its node for."""

    address: str | None = None
    memory_bytes: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SweepSettings:
    """How the jobs of a sweep are run.

    `devices` as written: `auto`, `0,1`, `sim:4`, `none:2`, a list or a number. `jobs_per_device` None: as many as the
    plans say. `retries` counts tries after the first one. `max_failures` None: no bound. `job_limit_s` is the time one
    job may take, None: for ever.
    """

    devices: str | int | tuple[int | str, ...] = "auto"
    devices_per_job: int = 1
    jobs_per_device: int | None = 1
    workers: str = WARM
    retries: int = 0
    max_failures: int | None = None
    fail_fast: bool = False
    job_limit_s: float | None = None
    engine: str = LOCAL
    ray: RaySettings = RaySettings()

    @property
    def failures_to_stop(self) -> int | None:
        """With how many failed jobs no other is started; None: never."""
        return 1 if self.fail_fast else self.max_failures


def read_settings(group: Mapping[str, Any], flags: Flags) -> SweepSettings:
    """Return the settings of a composed and checked `sweep` group with the flags of the command line over it.

    Raises `ConfigError` for flags that are no numbers, and by name for what this version cannot do.
    """
    engine = flags.engine or group.get("engine") or "local"
    if engine not in ENGINES:
        hint = did_you_mean(engine, ENGINES)
        raise ConfigError.of("sweep.engine", f"'{engine}' is not part of this version", hint=hint)
    together = flags.jobs_per_device or group.get("jobs_per_device") or 1
    devices = flags.devices or group.get("devices") or "auto"
    return SweepSettings(
        devices=tuple(devices) if isinstance(devices, list) else devices,
        devices_per_job=_count("--devices-per-job", flags.devices_per_job, group.get("devices_per_job"), 1) or 1,
        jobs_per_device=None if together == "auto" else _count("--jobs-per-device", str(together), None, 1),
        workers=group.get("workers") or WARM,
        retries=_count("--retries", flags.retries, group.get("retries"), 0) or 0,
        max_failures=_count("--max-failures", flags.max_failures, group.get("max_failures"), 1),
        fail_fast=flags.fail_fast or bool(group.get("fail_fast")),
        job_limit_s=group.get("job_limit_s"),
        engine=engine,
        ray=_ray(group.get("ray") or {}),
    )


def _ray(group: Mapping[str, Any]) -> RaySettings:
    memory = group.get("memory")
    if memory is None:
        return RaySettings(group.get("address"))
    try:
        size_bytes = read_bound(memory).size_bytes
    except ValueError:
        size_bytes = None
    if size_bytes is None:
        raise ConfigError.of("sweep.ray.memory", f"'{memory}' is no amount of memory", hint="write 32GiB")
    return RaySettings(group.get("address"), size_bytes)


def _count(flag: str, said: str | None, written: int | None, least: int) -> int | None:
    """The number of a flag, else that of the group. Raises `ConfigError` for text that is no such number."""
    if said is None:
        return None if written is None else int(written)
    if not said.isdecimal() or int(said) < least:
        raise ConfigError.of(flag, f"'{said}' is not a whole number from {least} on", f"{WHERE}: {flag} {said}")
    return int(said)
