"""What a sweep gave: `results.csv`, counts and the exit code. No torch."""

import csv
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from framework.errors import ConfigError, StageError
from framework.outputs.read_record import read_record
from framework.sweep.manifest import written
from framework.sweep.state import DONE, FAILED, INTERRUPTED, PENDING, REFUSED, RUNNING, State
from framework.sweep.words import show

FILE_NAME = "results.csv"
FIRST = ("job", "status", "attempts", "device", "seconds")
LAST = ("device_peak_bytes", "host_peak_bytes", "output", "frames_sha256", "folder", "error")
ORDER = (DONE, FAILED, REFUSED, INTERRUPTED, RUNNING, PENDING)
REFUSED_CODE, FAILED_CODE = 3, StageError.exit_code


def write_results(folder: Path, keys: Sequence[str], states: Sequence[State]) -> Path:
    """Write one line for each job, whole or not at all; return the path. Raises `OutputError`."""
    path = folder / FILE_NAME
    with written(path) as partial, partial.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow((*FIRST, *keys, *LAST))
        for state in states:
            writer.writerow(_row(folder, keys, state))
    return path


def _row(folder: Path, keys: Sequence[str], state: State) -> list[Any]:
    measured = measurements(_record(folder / state.name)) if state.status == DONE else {}
    seconds = "" if state.seconds is None else f"{state.seconds:.3f}"
    first = [state.number, state.status, len(state.attempts), state.device, seconds]
    values = [show(state.values[key]) if key in state.values else "" for key in keys]
    figures = [measured.get(name, "") for name in LAST[:4]]
    return [_safe(cell) for cell in (*first, *values, *figures, state.name, state.error or "")]


def _safe(cell: Any) -> Any:
    """A spreadsheet runs what begins like a formula; a prompt is none."""
    return f"'{cell}" if isinstance(cell, str) and cell[:1] in ("=", "+", "-", "@", "\t", "\r") else cell


def _record(place: Path) -> Mapping[str, Any]:
    try:
        return read_record(place)
    except ConfigError:
        return {}


def measurements(record: Mapping[str, Any]) -> Mapping[str, Any]:
    """What the record of a job measured: peaks over its requests, and its first output."""
    requests = record.get("requests") or ()
    found: dict[str, Any] = {}
    for name in ("device_peak_bytes", "host_peak_bytes"):
        peaks = [peak for request in requests if (peak := (request.get("memory") or {}).get(name)) is not None]
        if peaks:
            found[name] = max(peaks)
    outputs = [output for request in requests for output in request.get("outputs") or ()]
    if outputs:
        found |= {"output": outputs[0].get("path"), "frames_sha256": outputs[0].get("frames_sha256")}
    return found


def counts(states: Sequence[State]) -> str:
    """`22 done, 1 failed, 1 refused`."""
    found = Counter(state.status for state in states)
    ordered = [status for status in (*ORDER, *sorted(set(found) - set(ORDER))) if found[status]]
    return ", ".join(f"{found[status]} {status}" for status in ordered) or "no jobs"


def exit_code(states: Sequence[State]) -> int:
    """0 when all are done; 4 when any failed or was left; else 3 when any was refused."""
    statuses = {state.status for state in states}
    if statuses <= {DONE}:
        return 0
    return REFUSED_CODE if statuses <= {DONE, REFUSED} else FAILED_CODE
