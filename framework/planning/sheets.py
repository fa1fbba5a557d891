"""Sheets of known checkpoints, `conf/models/OWNER--NAME.json`: what their headers and configs say. No torch.

A sheet stands in for a checkpoint that is not on this machine; `tools/make_sheets.py` writes it. Headers that were
read over the network are kept in the same form below the cache root.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from types import MappingProxyType
from typing import Any

from framework.errors import PlanError
from framework.paths import EMBEDDED_MODELS
from framework.planning.patterns import compress, expand
from framework.planning.tensors import Tensor

EMPTY: Mapping[str, Any] = MappingProxyType({})
SCHEMA = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """One component: its class as `(library, name)`, its config, and its stored tensors in the model's own order.

    `dtype` is the one that most of its bytes are stored in; `source` says how class, config and dtype are known.
    Schedulers have no tensors.
    """

    class_name: tuple[str, str]
    config: Mapping[str, Any] = field(default_factory=lambda: EMPTY)
    source: str = ""
    dtype: str | None = None
    tensors: tuple[Tensor, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Sheet:
    """One checkpoint. `options` as in `model_index.json`; `variants` maps a variant to the dtype it is stored in."""

    repo: str
    pipeline_class: str
    parts: Mapping[str, Part]
    options: Mapping[str, Any] = field(default_factory=lambda: EMPTY)
    variants: Mapping[str, str] = field(default_factory=lambda: EMPTY)


def sheet_path(repo: str, folder: Path = EMBEDDED_MODELS) -> Path:
    return folder / f"{repo.replace('/', '--')}.json"


def find_sheet(repo: str) -> Sheet | None:
    """Return the shipped sheet of a hub name, or None."""
    path = sheet_path(repo)
    return read_sheet(path) if "/" in repo and path.is_file() else None


@cache
def read_sheet(path: Path) -> Sheet:
    """Read one sheet. Raises `PlanError` naming the file for anything that is not a sheet."""
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        if content["schema"] != SCHEMA:
            raise ValueError(f"schema {content['schema']}, this program reads {SCHEMA}")
        return sheet_of(content)
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise PlanError(f"{path}: not a sheet of a checkpoint: {error}") from error


def sheet_of(content: Mapping[str, Any]) -> Sheet:
    """Build a sheet from its JSON."""
    return Sheet(
        repo=content["repo"],
        pipeline_class=content["pipeline_class"],
        parts={name: _part(entry) for name, entry in content["components"].items()},
        options=content.get("options", {}),
        variants=content.get("variants", {}),
    )


def sheet_json(sheet: Sheet) -> dict[str, Any]:
    """Return a sheet as JSON data; `sheet_of` gives it back."""
    return {
        "schema": SCHEMA,
        "repo": sheet.repo,
        "pipeline_class": sheet.pipeline_class,
        "options": dict(sheet.options),
        "variants": dict(sheet.variants),
        "components": {name: _part_json(part) for name, part in sheet.parts.items()},
    }


def _part(entry: Mapping[str, Any]) -> Part:
    dtype = entry.get("dtype")
    library, name = entry["class"]
    lines = expand(list(entry.get("tensors", {}).items()))
    return Part(
        class_name=(library, name),
        config=entry.get("config", {}),
        source=entry.get("source", ""),
        dtype=dtype,
        tensors=tuple(_tensor(line, text, dtype) for line, text in lines),
    )


def _part_json(part: Part) -> dict[str, Any]:
    entry: dict[str, Any] = {"class": list(part.class_name), "source": part.source, "config": dict(part.config)}
    if part.tensors:
        entry |= {"dtype": part.dtype, "tensors": dict(_lines(part.tensors, part.dtype))}
    return entry


def _lines(tensors: Sequence[Tensor], dtype: str | None) -> list[tuple[str, str]]:
    return compress((tensor.name, _text(tensor, dtype)) for tensor in tensors)


def _text(tensor: Tensor, dtype: str | None) -> str:
    shape = ",".join(str(size) for size in tensor.shape)
    return shape if tensor.dtype == dtype else f"{shape} {tensor.dtype}"


def _tensor(name: str, text: str, dtype: str | None) -> Tensor:
    shape, _, own = text.partition(" ")
    sizes = tuple(int(size) for size in shape.split(",")) if shape else ()
    return Tensor(name, sizes, own or dtype or "float32")
