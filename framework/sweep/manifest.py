"""The folder of a sweep: its manifest, its lock, and which of its jobs are which. No torch."""

import fcntl
import json
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from framework import __version__
from framework.errors import ConfigError, OutputError
from framework.outputs.atomic import atomic_path
from framework.outputs.json_text import to_json
from framework.sweep.grid import Assignment
from framework.sweep.job import Job

SCHEMA = 1
FILE_NAME, LOCK_NAME = "sweep.json", "sweep.lock"
KEY = "--dir"
MAX_BYTES = 1 << 28


@dataclass(frozen=True, slots=True)
class Entry:
    """A job as the manifest has it; `words` are its whole command line, `own` the words of its values by key."""

    number: int
    name: str
    identity: str
    words: tuple[str, ...]
    own: Mapping[str, str]
    values: Mapping[str, Any]

    @classmethod
    def of(cls, job: Job) -> "Entry":
        own = {key: word for word in job.words if (key := word.partition("=")[0].lstrip("+")) in job.values}
        return cls(job.number, job.name, job.identity, job.words, own, dict(job.values))

    def line(self) -> tuple[list[str], list[Assignment]]:
        """The words that it shares with others and its own, to compose it again."""
        shared = [word for word in self.words if word not in self.own.values()]
        return shared, [Assignment(key, word, self.values[key]) for key, word in self.own.items()]


@dataclass(frozen=True, slots=True)
class Manifest:
    """What a sweep folder says of itself. `commands` are the words and flags of each start that added jobs."""

    version: str = __version__
    created: str = ""
    commands: tuple[Mapping[str, Any], ...] = ()
    axes: Mapping[str, Sequence[Any]] = field(default_factory=dict)
    jobs: tuple[Entry, ...] = ()

    def with_jobs(
        self, command: Mapping[str, Any], axes: Mapping[str, Sequence[Any]], jobs: Sequence[Job]
    ) -> "Manifest":
        """The manifest with the jobs that it does not have yet."""
        known = {entry.identity for entry in self.jobs}
        added = [Entry.of(job) for job in jobs if job.identity not in known]
        if not added:
            return self
        merged = {key: _together(self.axes.get(key, ()), axes.get(key, ())) for key in {**self.axes, **axes}}
        return replace(self, commands=(*self.commands, command), axes=merged, jobs=(*self.jobs, *added))


def _together(first: Sequence[Any], second: Sequence[Any]) -> list[Any]:
    return [*first, *(value for value in second if value not in first)]


def read_manifest(folder: Path) -> Manifest | None:
    """Return the manifest of `folder`, None where there is none. Raises `ConfigError` for one that cannot be read."""
    path = folder / FILE_NAME
    if not path.is_file():
        return None
    try:
        with path.open("rb") as file:
            data = json.loads(file.read(MAX_BYTES).decode("utf-8"))
        if data["schema"] != SCHEMA:
            raise ConfigError.of(KEY, f"'{path}' has schema {data['schema']!r}; this version reads schema {SCHEMA}")
        entries = tuple(
            Entry(job["number"], job["name"], job["identity"], tuple(job["words"]), job["own"], job["values"])
            for job in data["jobs"]
        )
        return Manifest(data["version"], data["created"], tuple(data["commands"]), data["axes"], entries)
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise ConfigError.of(KEY, f"'{path}' is no manifest of a sweep: {type(error).__name__}: {error}") from error


def write_manifest(folder: Path, manifest: Manifest) -> None:
    """Write it whole or not at all."""
    jobs = [
        {"number": e.number, "name": e.name, "identity": e.identity, "words": e.words, "own": e.own, "values": e.values}
        for e in manifest.jobs
    ]
    kept = {"commands": manifest.commands, "axes": manifest.axes, "jobs": jobs}
    data = {"schema": SCHEMA, "version": manifest.version, "created": manifest.created or now(), **kept}
    with written(folder / FILE_NAME) as partial:
        partial.write_text(to_json(data, indent=1) + "\n", encoding="utf-8", newline="\n")


@contextmanager
def written(path: Path) -> Iterator[Path]:
    """Write a file of a sweep whole or not at all, as `atomic_path`. Raises `OutputError` where that cannot be."""
    try:
        with atomic_path(path) as partial:
            yield partial
    except OSError as error:
        raise OutputError(f"cannot write {path}: {error.strerror or error}") from error


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Hold the folder for this process; the lock goes with the process, however it ends.

    Raises `ConfigError` where another process runs the sweep, and for a folder that cannot be written.
    """
    try:
        descriptor = os.open(folder / LOCK_NAME, os.O_CREAT | os.O_RDWR, 0o666)
    except OSError as error:
        raise ConfigError.of(
            KEY, f"cannot write to '{folder}': {error.strerror}", hint="choose another folder"
        ) from error
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            hint = "wait for it, or look at it with --status"
            raise ConfigError.of(KEY, f"another process is running the sweep in '{folder}'", hint=hint) from error
        yield
    finally:
        os.close(descriptor)


def is_running(folder: Path) -> bool:
    """Whether some process holds the folder now; it may be one that can only be read."""
    try:
        descriptor = os.open(folder / LOCK_NAME, os.O_RDONLY)
    except OSError:
        return False  # nobody has ever held it
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError:
        return True
    finally:
        os.close(descriptor)
    return False


def now() -> str:
    """UTC, ISO 8601."""
    return datetime.now(UTC).isoformat()
