"""What a profile is made from: the configs of a checkpoint, of this machine or of a sheet. No torch."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from framework.errors import LoadError, PlanError
from framework.loading.headers import own_dtype, weight_files
from framework.loading.index import ClassName, ModelIndex, read_index
from framework.loading.source import locate_model
from framework.planning.sheets import Sheet, find_sheet
from framework.spec import ModelSpec, PipelineSpec

CONFIG = "config.json"
SCHEDULER_CONFIG = "scheduler_config.json"


@dataclass(frozen=True, slots=True)
class Described:
    """A checkpoint as its configs describe it; without `has_files` only they are known.

    `configs` and `dtypes` are by component; a dtype is the one that the pipeline asks for, else the stored one.
    """

    index: ModelIndex
    has_files: bool
    configs: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    dtypes: Mapping[str, str] = field(default_factory=dict)


def describe(pipeline: PipelineSpec) -> Described:
    """Read the configs of `pipeline`'s checkpoint, or its sheet where it is not on this machine.

    Raises `LoadError` or `PlanError` where there is neither.
    """
    try:
        folder = locate_model(pipeline.model, pipeline.hints)
    except LoadError:
        sheet = find_sheet(pipeline.model.source)
        if sheet is None:
            raise
        return _from_sheet(pipeline, sheet)
    return _from_folder(pipeline, read_index(folder))


def _from_folder(pipeline: PipelineSpec, index: ModelIndex) -> Described:
    configs, dtypes = {}, {}
    for name, wanted in index.components.items():
        if wanted is None:
            continue
        folder = _folder(index, pipeline, name)
        for file in (CONFIG, SCHEDULER_CONFIG):
            if (folder / file).is_file():
                configs[name] = _read(folder / file)
        stored = own_dtype(weight_files(folder, pipeline.model.variant)) if folder.is_dir() else None
        dtypes[name] = _dtype(pipeline, name, stored)
    return Described(index, True, configs, dtypes)


def _from_sheet(pipeline: PipelineSpec, sheet: Sheet) -> Described:
    components: dict[str, ClassName | None] = {name: ClassName(*part.class_name) for name, part in sheet.parts.items()}
    index = ModelIndex(Path(sheet.repo), ClassName("diffusers", sheet.pipeline_class), components, dict(sheet.options))
    configs = {name: part.config for name, part in sheet.parts.items()}
    dtypes = {name: _dtype(pipeline, name, part.dtype) for name, part in sheet.parts.items()}
    return Described(index, False, configs, dtypes)


def _folder(index: ModelIndex, pipeline: PipelineSpec, name: str) -> Path:
    """The component's own folder, or that of its `source`, where it is on this machine."""
    component = pipeline.components.get(name)
    if component is None or component.source is None:
        return index.component_folder(name)
    folder = Path(component.source).expanduser()
    if (folder / CONFIG).is_file():
        return folder
    return locate_model(ModelSpec(source=component.source, revision=pipeline.model.revision)) / name


def _dtype(pipeline: PipelineSpec, name: str, stored: str | None) -> str:
    component = pipeline.components.get(name)
    asked = component.dtype if component is not None else None
    return asked or pipeline.model.dtype or stored or "float32"


def _read(file: Path) -> Mapping[str, Any]:
    try:
        content: Mapping[str, Any] = json.loads(file.read_text(encoding="utf-8"))
        return content
    except (OSError, ValueError) as error:
        raise PlanError(f"{file}: cannot be read as JSON: {error}") from error
