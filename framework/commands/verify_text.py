"""What `verify` prints: a line for each run, and where one began to differ. No torch."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from framework.commands.table import format_table
from framework.report.phrases import format_bytes, format_seconds
from framework.verifying.verdict import REFERENCE, Verdict

HEADER = ("run", "result", "weights moved in", "peak", "time")


def describe(verdicts: Sequence[Verdict], folder: Path) -> Iterator[str]:
    """Yield a table and, below it, what there is to say of each run."""
    yield format_table(HEADER, [_row(verdict) for verdict in verdicts])
    for verdict in verdicts:
        yield from (f"{verdict.trial.name}: {line}" for line in _more(verdict))
    yield str(folder)


def result(verdict: Verdict) -> str:
    """Return reference, equal, different, nothing moved, does not fit or failed."""
    if verdict.error is not None:
        return "does not fit" if verdict.error.exit_code == 3 else "failed"
    if verdict.trial.name.partition(" ")[0] == REFERENCE:
        return REFERENCE
    if verdict.differs:
        return "different"
    return "nothing moved" if verdict.unproved else "equal"


def describe_json(verdict: Verdict) -> dict[str, Any]:
    """Return everything as plain data; sizes in bytes, times in seconds."""
    trial, first, inside = verdict.trial, verdict.first, verdict.inside
    return {
        "run": trial.name,
        "result": result(verdict),
        "folder": str(trial.folder),
        "device": trial.device,
        "modes": dict(sorted(trial.modes.items())),
        "moved_bytes": dict(sorted(trial.moved.items())),
        "device_peak_bytes": trial.peak_bytes,
        "seconds": round(trial.seconds, 3),
        "frames_sha256": [list(trial.frames[index]) for index in sorted(trial.frames)],
        "first": None
        if first is None
        else {"request": first.request, "stage": first.stage, "step": first.step, "tensor": first.tensor},
        "inside": None
        if inside is None
        else {"component": inside.component, "kind": inside.kind, "tensor": inside.tensor},
        "notes": list(verdict.notes),
        "error": None if verdict.error is None else str(verdict.error).splitlines()[0],
    }


def _row(verdict: Verdict) -> tuple[str, ...]:
    trial = verdict.trial
    moved = format_bytes(sum(trial.moved.values())) if trial.moved else "none"
    peak = format_bytes(trial.peak_bytes) if trial.peak_bytes is not None else ""
    return (trial.name, result(verdict), moved, peak, format_seconds(trial.seconds))


def _more(verdict: Verdict) -> Iterator[str]:
    if verdict.error is not None:
        yield str(verdict.error).splitlines()[0]
    if verdict.first is not None:
        yield f"differs first at {verdict.first.where()}"
    if verdict.inside is not None:
        yield f"there differs {verdict.inside.inside()}"
    if verdict.unproved:
        yield f"equal, but nothing is proved of {', '.join(verdict.unproved)}: no weight of it was moved in a request"
    yield from verdict.notes
