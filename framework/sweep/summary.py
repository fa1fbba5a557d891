"""Reads a sweep's folder for its report: records, forecasts, ends of logs. No torch."""

import os
import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from framework.errors import ConfigError
from framework.outputs.read_record import read_record
from framework.report.sweep_data import Figures, JobData, SweepData
from framework.sweep.manifest import Manifest
from framework.sweep.results import counts, measurements
from framework.sweep.state import DONE, LOG, State
from framework.sweep.words import show

LAST_LINES, LAST_BYTES = 12, 1 << 14
FILES = ("report.html", "record.json", LOG)


def sweep_data(folder: Path, manifest: Manifest, keys: Sequence[str], states: Sequence[State]) -> SweepData:
    """Return what the report shows of the jobs in `folder`."""
    jobs = [_job(folder, keys, state) for state in states]
    axes = {key: list(dict.fromkeys(job.values[key] for job in jobs if key in job.values)) for key in keys}
    command = manifest.commands[-1] if manifest.commands else {"words": ()}
    return SweepData(
        folder=folder,
        jobs=jobs,
        axes=axes,
        counts=counts(states),
        command=f"python -m framework sweep {shlex.join(command['words'])}",
        created=manifest.created,
        version=manifest.version,
    )


def _job(folder: Path, keys: Sequence[str], state: State) -> JobData:
    place = folder / state.name
    record = _record(place) if state.status == DONE else {}
    return JobData(
        number=state.number,
        name=state.name,
        status=state.status,
        values={key: show(state.values[key]) for key in keys if key in state.values},
        device=state.device,
        attempts=len(state.attempts),
        took_s=state.seconds,
        error=state.error,
        figures=figures(record),
        outputs=[str(output.get("path")) for output in _outputs(record)],
        last_lines=() if state.status == DONE else last_lines(place / LOG),
        files=[name for name in FILES if (place / name).is_file()],
    )


def _record(place: Path) -> Mapping[str, Any]:
    try:
        return read_record(place)
    except ConfigError:
        return {}


def _outputs(record: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    for request in record.get("requests") or ():
        yield from request.get("outputs") or ()


def figures(record: Mapping[str, Any]) -> Figures:
    """Return what a record tells of time and memory; of a simulated device only its own time."""
    requests = record.get("requests") or ()
    peaks = measurements(record)
    virtual = str((record.get("plan") or {}).get("device")).startswith("sim")
    timings = [request.get("timings") or {} for request in requests]
    seconds: list[float | None] = [sum((own.get("device") or {}).values()) or None for own in timings]
    if not virtual:
        seconds = [own.get("total") for own in timings]
    expected = [stage for request in requests[:1] for stage in (request.get("expected") or {}).values()]
    timed = [stage for stage in expected if _both(stage, "s")]
    peaked = [stage for stage in expected if _both(stage, "peak_bytes")]
    return Figures(
        seconds=_sum(seconds),
        virtual=virtual,
        device_peak_bytes=peaks.get("device_peak_bytes"),
        host_peak_bytes=peaks.get("host_peak_bytes"),
        expected_s=_sum(stage["expected_s"] for stage in timed),
        measured_s=_sum(stage["measured_s"] for stage in timed),
        expected_peak_bytes=max((stage["expected_peak_bytes"] for stage in peaked), default=None),
        measured_peak_bytes=max((stage["measured_peak_bytes"] for stage in peaked), default=None),
    )


def _both(stage: Mapping[str, Any], what: str) -> bool:
    return stage.get(f"expected_{what}") is not None and stage.get(f"measured_{what}") is not None


def _sum(values: Iterable[float | None]) -> float | None:
    """The sum of figures that are all known; None where one is not, or where there is none."""
    listed = list(values)
    known = [value for value in listed if value is not None]
    return sum(known) if known and len(known) == len(listed) else None


def last_lines(log: Path) -> list[str]:
    """Return the end of a log: at most a dozen lines, of which the last says why."""
    try:
        with log.open("rb") as file:
            file.seek(max(0, os.fstat(file.fileno()).st_size - LAST_BYTES))
            text = file.read().decode("utf-8", "backslashreplace")
    except OSError:
        return []
    return [line for line in text.splitlines() if line.strip()][-LAST_LINES:]
