"""What is known of a job in its folder: `job.json` with every attempt, and the evidence that it is done. No torch."""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from framework.errors import ConfigError, OutputError
from framework.outputs.atomic import atomic_path
from framework.outputs.hashing import file_sha256
from framework.outputs.json_text import to_json
from framework.outputs.machine import installed_versions
from framework.outputs.read_record import read_record
from framework.outputs.record import FILE_NAME as RECORD
from framework.sweep.job import Job, content_of
from framework.sweep.manifest import now, written

FILE_NAME, LOG = "job.json", "log.txt"
ARTIFACTS = "artifacts"  # the folder of a run in which its stages' results are kept
PENDING, RUNNING, DONE, FAILED, REFUSED, INTERRUPTED = "pending", "running", "done", "failed", "refused", "interrupted"


@dataclass(slots=True)
class Attempt:
    """One try. Times are UTC, ISO 8601; `device` is what the sweep calls it, `exit_code` that of a worker that died."""

    device: str
    started: str
    ended: str | None = None
    status: str = RUNNING
    error: str | None = None
    seconds: float | None = None
    exit_code: int | None = None


@dataclass(slots=True)
class State:
    """The state of one job; it is written at each change."""

    name: str
    number: int
    values: Mapping[str, Any]
    words: tuple[str, ...]
    status: str = PENDING
    error: str | None = None
    attempts: list[Attempt] = field(default_factory=list)

    @property
    def seconds(self) -> float | None:
        """The time of the last attempt."""
        return self.attempts[-1].seconds if self.attempts else None

    @property
    def device(self) -> str:
        """The device of the last attempt."""
        return self.attempts[-1].device if self.attempts else ""


def read_state(folder: Path, job: Job) -> State:
    """Return what is known of `job`; nothing or nonsense in its file counts as nothing known."""
    fresh = State(job.name, job.number, dict(job.values), job.words)
    found = _read(folder / job.name / FILE_NAME)
    if found is None:
        return fresh
    fresh.status, fresh.error, fresh.attempts = found.status, found.error, found.attempts
    return fresh


def read_state_named(folder: Path, name: str) -> State | None:
    """Return the state in `folder/name`, None where there is none."""
    return _read(folder / name / FILE_NAME)


def _read(path: Path) -> State | None:
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
        attempts = [Attempt(**attempt) for attempt in data.pop("attempts")]
        return State(**{**data, "words": tuple(data["words"]), "attempts": attempts})
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return None


def write_state(folder: Path, state: State) -> None:
    """Write `job.json` of a job, whole or not at all; makes its folder. Raises `OutputError`."""
    with written(_own_folder(folder, state) / FILE_NAME) as partial:
        partial.write_text(to_json(asdict(state), indent=1) + "\n", encoding="utf-8", newline="\n")


def _own_folder(folder: Path, state: State) -> Path:
    place = folder / state.name
    try:
        place.mkdir(exist_ok=True)
    except OSError as error:
        raise OutputError(f"cannot make the folder of job {state.number}, {place}: {error.strerror}") from error
    return place


def begin_attempt(folder: Path, state: State, device: str) -> Path:
    """Count one more attempt, put what an earlier one left aside as `attempt-N`, and return the clean folder."""
    place = _own_folder(folder, state)
    left = [path for path in place.iterdir() if path.name != FILE_NAME and not path.name.startswith("attempt-")]
    if left:
        aside = place / f"attempt-{max(1, len(state.attempts))}"
        aside.mkdir(exist_ok=True)
        for path in left:
            path.replace(aside / path.name)
    for attempt in state.attempts:
        if attempt.ended is None:  # the process that counted it is gone
            attempt.status, attempt.error = INTERRUPTED, "the sweep ended before the job"
    state.attempts.append(Attempt(device, now()))
    state.status, state.error = RUNNING, None
    write_state(folder, state)
    return place


def left_to_go_on(folder: Path, state: State, job: Job) -> Path | None:
    """Return what the attempt before the last one left to go on from: artifacts of this very job, made the same way.

    None where there are none, where the device, a library or a drawn seed is another now.
    """
    aside = folder / state.name / f"attempt-{len(state.attempts) - 1}"
    if not (aside / ARTIFACTS).is_dir() or job.spec is None or any(one.seeds is None for one in job.spec.requests):
        return None
    try:
        record = read_record(aside)
    except ConfigError:
        return None
    config = record["config"]
    same = content_of(config) == job.content and config.get("device") == job.spec.config.get("device")
    return aside if same and record.get("versions") == installed_versions() else None


def end_attempt(
    folder: Path, state: State, status: str, error: str | None, seconds: float, exit_code: int | None = None
) -> None:
    """Close the last attempt; what its worker could not say any more goes into its record and its log."""
    attempt = state.attempts[-1]
    attempt.ended, attempt.status, attempt.error = now(), status, error
    attempt.seconds, attempt.exit_code = round(seconds, 3), exit_code
    state.status, state.error = status, error
    if exit_code is not None:
        place = folder / state.name
        with (place / LOG).open("a", encoding="utf-8", errors="backslashreplace", newline="\n") as log:
            log.write(f"{error}\n")
        _close_record(place / RECORD, status, error)
    write_state(folder, state)


def _close_record(path: Path, status: str, error: str | None) -> None:
    """Say in the record how a run ended whose process is gone."""
    try:
        record = dict(read_record(path))
    except ConfigError:
        return  # it died before the first line of its record
    record.update(status=status, error=error, ended=now())
    with atomic_path(path) as partial:
        partial.write_text(to_json(record, indent=1) + "\n", encoding="utf-8", newline="\n")


def is_done(folder: Path, job: Job) -> bool:
    """Whether a complete record of this very job is there, and every output that it lists is as it says."""
    place = folder / job.name
    try:
        record = read_record(place)
    except ConfigError:
        return False
    if record.get("status") != DONE or record.get("ended") is None or not record["requests"]:
        return False
    if content_of(record["config"]) != job.content:
        return False
    outputs = [output for request in record["requests"] for output in request.get("outputs") or ()]
    return all(_is_whole(place, output) for output in outputs)


def _is_whole(place: Path, output: Mapping[str, Any]) -> bool:
    path = place / str(output.get("path"))
    return path.is_file() and file_sha256(path) == output.get("sha256")
