"""Writes spans as a Chrome trace, which Perfetto and chrome://tracing open. No torch."""

import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from framework.errors import OutputError
from framework.outputs.atomic import atomic_path
from framework.tracing.spans import STALL, TRACKS, USES, Span
from framework.tracing.summary import TraceSummary

FILE_NAME = "trace.json"
FIRST_USE_TRACK = len(TRACKS)  # uses overlap between components, so that each component has a track of its own


def write_trace(folder: Path, spans: Sequence[Span], summary: TraceSummary) -> Path:
    """Write `trace.json` into `folder` and return its path. Raises `OutputError`."""
    path = folder / FILE_NAME
    used = sorted({span.component for span in spans if span.track == USES}, key=str)
    document = {
        "displayTimeUnit": "ms",
        "otherData": {"clock": "virtual" if summary.virtual else "device", "summary": asdict(summary)},
        "traceEvents": [*_names(used), *(_event(span, used) for span in spans)],
    }
    try:
        with atomic_path(path) as partial:
            partial.write_text(json.dumps(document, separators=(",", ":")), encoding="utf-8")
    except OSError as error:
        raise OutputError(f"cannot write {path}: {error}") from error
    return path


def _names(used: Sequence[str | None]) -> Iterator[dict[str, Any]]:
    yield {"ph": "M", "pid": 1, "tid": 0, "name": "process_name", "args": {"name": "run"}}
    shown = [(number, track) for number, track in enumerate(TRACKS) if track != USES]
    shown += [(FIRST_USE_TRACK + n, f"use of {name}") for n, name in enumerate(used)]
    for number, name in shown:
        yield {"ph": "M", "pid": 1, "tid": number, "name": "thread_name", "args": {"name": name}}
        yield {"ph": "M", "pid": 1, "tid": number, "name": "thread_sort_index", "args": {"sort_index": number}}


def _event(span: Span, used: Sequence[str | None]) -> dict[str, Any]:
    where = {"component": span.component, "layer": span.layer, "stage": span.stage, "step": span.step}
    amount = {"bytes": span.size_bytes, "direction": span.direction}
    event: dict[str, Any] = {
        "ph": "X",
        "pid": 1,
        "tid": _track(span, used),
        "name": span.name,
        "cat": span.kind,
        "ts": round(span.start_s * 1e6, 3),
        "dur": round(span.seconds * 1e6, 3),
        "args": {name: value for name, value in {**where, **amount}.items() if value is not None},
    }
    return {**event, "cname": "terrible"} if span.kind == STALL else event


def _track(span: Span, used: Sequence[str | None]) -> int:
    if span.track != USES:
        return TRACKS.index(span.track)
    return FIRST_USE_TRACK + used.index(span.component)
