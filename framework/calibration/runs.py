"""Reads what runs were expected to take and took, from their records. No torch."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeGuard

from framework.calibration.learn import Observed, error, learn
from framework.calibration.measured import RATES, Measured, measured_of
from framework.errors import ConfigError
from framework.outputs.read_record import read_record
from framework.outputs.record import FILE_NAME

KEY = "--from-runs"
LEAST_S = 0.001
"""Shorter stages say nothing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Learned:
    """What runs on one device tell: rates, how far forecasts were off before and are now, and from how many stages.

    `device` is the name of the device that ran; empty where it was planned for a profile by name. `assumed` are the
    rates of the latest forecast.
    """

    device: str
    hardware: str
    assumed: Mapping[str, float]
    rates: Measured
    num_stages: int
    error_before: float
    error_after: float


def learn_from(folders: Sequence[Path], tell: Callable[[str], None] = lambda line: None) -> list[Learned]:
    """Return what the runs in `folders` tell, by device. Raises `ConfigError` where none was held against a plan.

    `tell` hears of each record below a folder that cannot be read.
    """
    found: dict[tuple[str, str], list[Mapping[str, Any]]] = {}
    for record in _records(folders, tell):
        plan = (record.get("plan") or {}).get("forecast") or {}
        if isinstance(plan.get("rates"), Mapping) and any(_stages(record)):
            found.setdefault((str(plan.get("device_key") or ""), str(plan.get("hardware"))), []).append(record)
    if not found:
        hint = "a run on a device is held against its plan where the work of its request is known"
        raise ConfigError.of(KEY, f"no run in {', '.join(map(str, folders))} was held against a plan", hint=hint)
    return [_learned(*names, records) for names, records in found.items()]


def _records(folders: Sequence[Path], tell: Callable[[str], None]) -> Iterator[Mapping[str, Any]]:
    """The records of run folders, and of all runs below other folders, oldest first."""
    found: list[Mapping[str, Any]] = []
    for folder in folders:
        own = (folder / FILE_NAME).is_file() or not folder.is_dir()
        paths = [folder] if own else sorted(path.parent for path in folder.rglob(FILE_NAME))
        if not paths:
            raise ConfigError.of(KEY, f"there is no run in '{folder}'")
        for path in paths:
            try:
                found.append(read_record(path, KEY))
            except ConfigError as error:
                if path == folder:
                    raise
                tell(f"passed over: {error}")
    return iter(sorted(found, key=lambda record: str(record.get("started"))))


def _learned(device: str, hardware: str, records: Sequence[Mapping[str, Any]]) -> Learned:
    assumed = _rates(records[-1])
    stages = [_as_if(stage, _rates(record), assumed) for record in records for stage in _stages(record)]
    factors = learn(stages)
    changed = {
        rate: assumed[rate] / factor if rate == "launch_us" else assumed[rate] * factor
        for rate, factor in factors.items()
    }
    return Learned(
        device=device,
        hardware=hardware,
        assumed=assumed,
        rates=measured_of(changed),
        num_stages=len(stages),
        error_before=error(stages, {}),
        error_after=error(stages, factors),
    )


def _rates(record: Mapping[str, Any]) -> dict[str, float]:
    rates = record["plan"]["forecast"]["rates"]
    return {name: float(rates[name]) for name in RATES if _is_positive(rates.get(name))}


def _as_if(stage: Observed, own: Mapping[str, float], assumed: Mapping[str, float]) -> Observed:
    """A stage as it would have been foretold with the rates of the latest forecast."""

    def factor(rate: str) -> float:
        ratio = own[rate] / assumed[rate] if rate in own and rate in assumed else 1.0
        return 1 / ratio if rate == "launch_us" else ratio

    spent = {rate: seconds * factor(rate) for rate, seconds in stage.spent_s.items() if rate in assumed}
    return Observed(spent, stage.rest_s + sum(spent.values()), stage.measured_s)


def _stages(record: Mapping[str, Any]) -> Iterator[Observed]:
    """The stages of the first request: later ones find embeddings and weights in place."""
    requests = record.get("requests") or []
    checked = requests[0].get("expected") if requests else None
    for stage in record["plan"]["forecast"].get("stages") or ():
        own = checked.get(stage.get("stage")) if isinstance(checked, Mapping) and isinstance(stage, Mapping) else None
        spent = stage.get("spent_s") if own else None
        if not isinstance(own, Mapping) or not isinstance(spent, Mapping):
            continue
        expected, measured = own.get("expected_s"), own.get("measured_s")
        parts = {name: float(value) for name, value in spent.items() if name in RATES and _is_positive(value)}
        if _is_positive(expected) and _is_positive(measured) and measured >= LEAST_S and parts:
            yield Observed(parts, float(expected), float(measured))


def _is_positive(value: Any) -> TypeGuard[int | float]:
    return isinstance(value, int | float) and not isinstance(value, bool) and 0 < value < 1e15
