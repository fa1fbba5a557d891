"""Reads a record back for `run --from`; a record comes from anywhere, so nothing in it is trusted. No torch."""

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from framework.errors import ConfigError
from framework.outputs.record import FILE_NAME, SCHEMA

MAX_BYTES = 16 * 2**20
_KEY = "--from"


def read_record(folder: Path, key: str = _KEY) -> Mapping[str, Any]:
    """Return the record of a run folder, or the record file itself given as `folder`; `key` is what named it.

    Checked are size, UTF-8, JSON, duplicate keys, the schema number and the types of `config` and `requests`; the
    config must still go through the composer's checks. Raises `ConfigError` naming the file.
    """
    try:
        return _checked(folder / FILE_NAME if folder.is_dir() else folder)
    except ConfigError as error:
        raise ConfigError(replace(problem, key=key) for problem in error.problems) from error.__cause__


def _checked(path: Path) -> Mapping[str, Any]:
    record = _parse(_read(path), path)
    if not isinstance(record, dict):
        raise _refused(path, "is not a record: expected a mapping")
    if type(record.get("schema")) is not int or record["schema"] != SCHEMA:
        raise _refused(path, f"has schema {record.get('schema')!r}; this version reads schema {SCHEMA}")
    if not isinstance(record.get("config"), dict):
        raise _refused(path, "has no config")
    requests = record.get("requests")
    if not isinstance(requests, list) or not all(isinstance(request, dict) for request in requests):
        raise _refused(path, "has no list of requests")
    return record


def _read(path: Path) -> str:
    if not path.is_file():
        hint = f"give the folder of a run, which holds {FILE_NAME}"
        raise _refused(path, "is not a file" if path.exists() else "does not exist", hint)
    try:
        with path.open("rb") as stream:
            content = stream.read(MAX_BYTES + 1)
        if len(content) > MAX_BYTES:
            raise _refused(path, f"is larger than {MAX_BYTES // 2**20} MiB, so it is no record")
        return content.decode("utf-8")
    except UnicodeDecodeError as error:
        raise _refused(path, f"is not UTF-8 at byte {error.start}") from error
    except OSError as error:
        raise _refused(path, f"cannot be read: {error.strerror}") from error


def _parse(text: str, path: Path) -> Any:
    try:
        return json.loads(text, object_pairs_hook=_unique, parse_constant=_no_constant)
    except RecursionError as error:
        raise _refused(path, "is nested too deeply") from error
    except ValueError as error:  # of JSON itself, of our hooks, or of a number too long to read
        raise _refused(path, f"is not valid JSON: {error}") from error


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    mapping = dict(pairs)
    if len(mapping) != len(pairs):
        seen: set[str] = set()
        twice = next(key for key, _ in pairs if key in seen or seen.add(key))  # type: ignore[func-returns-value]
        raise ValueError(f"the key '{twice}' appears twice")
    return mapping


def _no_constant(name: str) -> None:
    raise ValueError(f"{name} is not a number of JSON")


def _refused(path: Path, reason: str, hint: str = "") -> ConfigError:
    return ConfigError.of(_KEY, f"'{path}' {reason}", hint=hint)
