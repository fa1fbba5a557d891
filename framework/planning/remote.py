"""Reads the headers and configs of a hub repository, and nothing else of it, into a sheet. No torch.

A header is the start of a file: one or two ranged requests each. What was read is kept below the cache root, so that
the next plan needs no connection. `HF_HUB_OFFLINE` is honoured without one.
"""

import json
import struct
import time
from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from framework.errors import LoadError, PlanError
from framework.loading.chosen_files import chosen_weights
from framework.loading.hub import explained
from framework.loading.index import parse_index
from framework.loading.source import INDEX_FILE, SOURCE_KEY
from framework.outputs.atomic import atomic_path
from framework.paths import cache_root
from framework.planning.sheets import Part, Sheet, read_sheet, sheet_json, sheet_path
from framework.planning.tensors import Tensor, from_header, main_dtype

TIMEOUT_S = 10.0
FIRST_BYTES = 128 * 1024
NUM_CONNECTIONS = 8
LARGEST_HEADER_BYTES = 100_000_000
MAX_AGE_S = 7 * 24 * 3600.0
"""A branch may move: after this time its headers are read again, if there is a connection."""

CONFIGS = ("config.json", "scheduler_config.json")


def remote_sheet(
    repo: str, revision: str | None, variant: str | None, components: Iterable[str] | None = None
) -> Sheet | None:
    """Return the sheet of a repository as the hub has it, or None offline with nothing kept.

    `components` limits what is read (None: all). Raises `LoadError` in one line where the hub does not answer well.
    """
    wanted = None if components is None else frozenset(components)
    path = sheet_path(f"{repo}@{revision or 'main'}{f'.{variant}' if variant else ''}", cache_root() / "sheets")
    kept = _kept(path, wanted)
    if kept is not None and time.time() - path.stat().st_mtime < MAX_AGE_S:
        return kept
    if _offline():
        return kept
    try:
        with explained(SOURCE_KEY, repo, revision):
            sheet = _read(repo, revision, variant, wanted)
    except LoadError:
        if kept is not None:
            return kept
        raise
    _keep(path, sheet)
    return sheet


def _kept(path: Path, wanted: frozenset[str] | None) -> Sheet | None:
    """A sheet of ours that has all that is wanted; a damaged one counts as none."""
    if not path.is_file():
        return None
    try:
        sheet = read_sheet(path)
    except PlanError:
        return None
    return sheet if wanted is not None and wanted <= set(sheet.parts) else None


def _keep(path: Path, sheet: Sheet) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with atomic_path(path) as partial:
        partial.write_text(json.dumps(sheet_json(sheet)), encoding="utf-8")
    read_sheet.cache_clear()


def _read(repo: str, revision: str | None, variant: str | None, wanted: frozenset[str] | None) -> Sheet:
    from huggingface_hub import HfApi, constants

    info = HfApi(endpoint=constants.ENDPOINT).model_info(repo, revision=revision, timeout=TIMEOUT_S)
    names = [sibling.rfilename for sibling in info.siblings or ()]
    files = _Files(repo, str(info.sha))
    index = parse_index(Path(INDEX_FILE), files.json(INDEX_FILE))
    chosen = [name for name, cls in index.components.items() if cls and (wanted is None or name in wanted)]
    with ThreadPoolExecutor(NUM_CONNECTIONS) as pool:
        jobs = {name: pool.submit(_part, files, name, names, variant) for name in chosen}
        read = {name: job.result() for name, job in jobs.items()}
    parts = {}
    for name, (config, tensors) in read.items():
        cls = index.components[name]
        assert cls is not None
        parts[name] = Part(
            class_name=(cls.library, cls.name),
            config=config,
            source=f"headers of {repo}",
            dtype=main_dtype(tensors),
            tensors=tuple(tensors),
        )
    return Sheet(repo=repo, pipeline_class=index.pipeline_class.name, options=index.options, parts=parts)


def _part(files: "_Files", name: str, names: list[str], variant: str | None) -> tuple[Mapping[str, Any], list[Tensor]]:
    inside = [path.removeprefix(f"{name}/") for path in names if path.startswith(f"{name}/")]
    config = next((file for file in CONFIGS if file in inside), None)
    weights = chosen_weights(inside, variant)
    found = [tensor for file in weights for tensor in from_header(files.header(f"{name}/{file}"))]
    return (files.json(f"{name}/{config}") if config else {}), found


class _Files:
    """The files of one commit, read in pieces over the library's own session: its proxies, tokens and redirects."""

    def __init__(self, repo: str, commit: str) -> None:
        self._repo, self._commit = repo, commit

    def json(self, path: str) -> dict[str, Any]:
        content = json.loads(self._get(path))
        if not isinstance(content, dict):
            raise LoadError(f"{self._repo}/{path}: expected a JSON object")
        return content

    def header(self, path: str) -> dict[str, dict[str, Any]]:
        start = self._get(path, FIRST_BYTES)
        if len(start) < 8:
            raise LoadError(f"{self._repo}/{path}: not a safetensors file")
        (length,) = struct.unpack("<Q", start[:8])
        if length > LARGEST_HEADER_BYTES:
            raise LoadError(f"{self._repo}/{path}: not a safetensors file: a header of {length} bytes")
        if length + 8 > len(start):
            start = self._get(path, length + 8)
        header: dict[str, dict[str, Any]] = json.loads(start[8 : 8 + length])
        return header

    def _get(self, path: str, size_bytes: int | None = None) -> bytes:
        """The first `size_bytes` of a file (None: all). A server that ignores the range is read no further."""
        from huggingface_hub import constants, get_session, hf_hub_url, hf_raise_for_status
        from huggingface_hub.utils import build_hf_headers  # type: ignore[attr-defined]

        url = hf_hub_url(self._repo, path, revision=self._commit, endpoint=constants.ENDPOINT)
        ranged = {} if size_bytes is None else {"Range": f"bytes=0-{size_bytes - 1}"}
        headers = {**build_hf_headers(), **ranged}
        with get_session().stream("GET", url, headers=headers, timeout=TIMEOUT_S, follow_redirects=True) as response:
            if response.status_code >= 400:
                response.read()  # its text says why
            hf_raise_for_status(response)
            found = b""
            for piece in response.iter_bytes():
                found += piece
                if size_bytes is not None and len(found) >= size_bytes:
                    return found[:size_bytes]
        return found


def _offline() -> bool:
    from huggingface_hub import is_offline_mode

    return bool(is_offline_mode())
