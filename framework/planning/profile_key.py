"""What a profile depends on, as one short name. No torch: versions come from the packages' metadata."""

import hashlib
import json
import sys
from collections.abc import Iterator, Mapping
from dataclasses import fields
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from framework.graph import Graph
from framework.paths import ROOT, expand
from framework.planning.profile_source import Described
from framework.spec import RequestSpec, RunSpec

PACKAGES = ("torch", "diffusers", "transformers", "accelerate", "tokenizers")
SOURCES = (
    "framework/planning/profile*.py",
    "framework/planning/facts.py",
    "framework/runtime/*.py",
    "framework/memory/layer*.py",
    "framework/platforms/sim/*.py",
    "stages/**/*.py",
)
TEXTS = ("prompt", "negative_prompt")
WITHOUT_EFFECT = (*TEXTS, "seeds", "generator_device")
FILES = ("image", "video", "mask")
WEIGHTS = (".safetensors", ".bin", ".pt", ".pth", ".ckpt", ".gguf")


def profile_key(
    spec: RunSpec, graph: Graph, request: RequestSpec, described: Described, target: str, *, texts: bool
) -> str:
    """Return the name of a profile; `texts`: of one that holds for the very texts of this request only."""
    pipeline = spec.pipeline
    parts = {
        "target": target,
        "versions": _versions(),
        "source": _source_sum(),
        "stages": [[node.spec, _file_sum(node.stage_class)] for node in graph.nodes],
        "family": pipeline.family,
        "components": pipeline.components,
        "scheduler": pipeline.scheduler,
        "args": pipeline.args,
        "numerics": spec.numerics,
        "prompt_cache": spec.prompt_cache_memory,
        "described": [described.index, described.has_files, described.configs, described.dtypes],
        "helpers": list(_helper_files(described)),
        "request": _request(request),
        "texts": [getattr(request, name) for name in TEXTS] if texts else None,
    }
    return hashlib.sha256(json.dumps(parts, default=_plain, sort_keys=True).encode()).hexdigest()[:32]


def _request(request: RequestSpec) -> dict[str, Any]:
    """Its values; of texts only whether there is a negative one, and whether it is the same."""
    values = {field.name: getattr(request, field.name) for field in fields(request)}
    kept: dict[str, Any] = {name: value for name, value in values.items() if name not in WITHOUT_EFFECT}
    for name in FILES:
        if kept[name] is not None:
            kept[name] = [kept[name], _stamp(expand(kept[name]))]
    outputs = len(request.seeds) if request.seeds is not None else request.num_outputs
    return {
        **kept,
        "outputs": outputs,
        "negative": bool(request.negative_prompt),
        "one_text": request.prompt == request.negative_prompt,
    }


def _helper_files(described: Described) -> Iterator[Any]:
    """Tokenizers and code beside the weights: whatever is no weight file."""
    for name, folder in sorted(described.places.items()):
        if folder.is_dir():
            files = sorted(file for file in folder.iterdir() if file.is_file() and file.suffix not in WEIGHTS)
            yield name, [(file.name, _stamp(file)) for file in files]


def _stamp(file: Path) -> list[int] | None:
    try:
        status = file.stat()
    except OSError:
        return None
    return [status.st_size, status.st_mtime_ns]


@cache
def _versions() -> dict[str, str | None]:
    return {"python": sys.version.split()[0], **{name: _version(name) for name in PACKAGES}}


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None


@cache
def _source_sum() -> str:
    """The text of our own code that a request goes through."""
    total = hashlib.sha256()
    for pattern in SOURCES:
        for file in sorted(ROOT.glob(pattern)):
            total.update(file.read_bytes())
    return total.hexdigest()


def _file_sum(stage_class: Any) -> str | None:
    """The text of the file that a stage is written in: it may be somebody else's."""
    file = getattr(sys.modules.get(stage_class.__module__), "__file__", None)
    return hashlib.sha256(Path(file).read_bytes()).hexdigest() if file else None


def _plain(value: Any) -> Any:
    """Return JSON data for what the facts are made of: frozen dataclasses, mappings and paths."""
    if hasattr(value, "__dataclass_fields__"):
        return {field.name: getattr(value, field.name) for field in fields(value)}
    if isinstance(value, Mapping):
        return dict(value)
    return str(value)
