"""Keeps what was measured or learned, one file for each device below the cache root. No torch."""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from framework.calibration.measured import RATES, Measured
from framework.outputs.atomic import atomic_path
from framework.paths import cache_root

SCHEMA = 1
MEASURED, LEARNED = "measured", "learned from runs"


@dataclass(frozen=True, slots=True, kw_only=True)
class Calibration:
    """What is known of one device: its rates, when and how they were found, and what was wrong with the machine."""

    device: str
    rates: Measured
    made: str
    how: str = MEASURED
    flags: tuple[str, ...] = ()

    @property
    def source(self) -> str:
        """The line that a profile made of it has as its source."""
        return f"rates {self.how} on {self.made[:10]}"


def now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")


def path_of(device: str) -> Path:
    """Return the file of a device, named by what `planning.machine` calls it."""
    plain = "".join(char if char.isascii() and char.isalnum() else "-" for char in device.lower())[:60]
    return cache_root() / "calibration" / f"{plain}-{hashlib.sha256(device.encode()).hexdigest()[:8]}.json"


def write_calibration(calibration: Calibration) -> Path:
    """Write the file of a device, whole or not at all, and return its path. Raises `OSError`."""
    path = path_of(calibration.device)
    path.parent.mkdir(parents=True, exist_ok=True)
    with atomic_path(path) as partial:
        text = json.dumps({"schema": SCHEMA, **asdict(calibration)}, indent=1)
        partial.write_text(f"{text}\n", encoding="utf-8", newline="\n")
    return path


def read_calibration(device: str) -> Calibration | None:
    """Return what is kept of a device; None where there is nothing, or nothing that this version can read."""
    try:
        content = json.loads(path_of(device).read_text(encoding="utf-8"))
        if content["schema"] != SCHEMA or content["device"] != device:
            return None
        return Calibration(
            device=device,
            rates=_measured(content["rates"]),
            made=str(content["made"]),
            how=str(content["how"]),
            flags=tuple(map(str, content["flags"])),
        )
    except (OSError, ValueError, KeyError, TypeError):
        return None


def unread_note(device: str) -> str:
    """Return a line about a file of `device` that is there and cannot be read; empty where all is well."""
    path = path_of(device)
    if not path.is_file() or read_calibration(device) is not None:
        return ""
    return f"'{path}' holds no rates that can be read, so figures are assumed; `framework calibrate` measures again"


def _measured(values: Mapping[str, Any]) -> Measured:
    """Raises `ValueError` for rates that no machine has."""
    known = {field.name for field in fields(Measured)}
    found = Measured(**{name: value for name, value in values.items() if name in known})
    rates = {name: getattr(found, name) for name in RATES}
    if not all(rate is None or (_is_number(rate) and (rate > 0 or name == "overlap")) for name, rate in rates.items()):
        raise ValueError("a rate is no positive number")
    return found


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and value == value and abs(value) < 1e12
