"""What a profile is made from: the configs of a checkpoint, of this machine or of a sheet. No torch."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from framework.errors import LoadError
from framework.loading.headers import own_dtype, weight_files
from framework.loading.index import CONFIG_FILES, ClassName, ModelIndex, read_index, read_json
from framework.loading.places import component_place
from framework.loading.source import SAFETENSORS, is_hub_name, locate_model
from framework.planning.remote import remote_sheet
from framework.planning.sheets import Sheet, find_sheet
from framework.spec import ComponentSpec, PipelineSpec


@dataclass(frozen=True, slots=True)
class Described:
    """A checkpoint as its configs describe it; without `has_files` only they are known.

    `configs`, `dtypes` and `places`, the folders on this machine, are by component; a dtype is the one that the
    pipeline asks for, else the stored one.
    """

    index: ModelIndex
    has_files: bool
    configs: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    dtypes: Mapping[str, str] = field(default_factory=dict)
    places: Mapping[str, Path] = field(default_factory=dict)


def describe(pipeline: PipelineSpec) -> Described:
    """Read the configs of `pipeline`'s checkpoint, or a sheet where it is not on this machine: shipped, or read once.

    Raises `LoadError` where there is neither, and `PlanError` for configs that cannot be read.
    """
    model = pipeline.model
    try:
        folder = locate_model(model, pipeline.hints)
    except LoadError:
        if not is_hub_name(model.source):
            raise
        sheet = find_sheet(model.source) or remote_sheet(model.source, model.revision, model.variant)
        if sheet is None:
            raise
        return _from_sheet(pipeline, sheet)
    return _from_folder(pipeline, read_index(folder))


def _from_folder(pipeline: PipelineSpec, index: ModelIndex) -> Described:
    configs, dtypes, places = {}, {}, {}
    for name, wanted in index.components.items():
        if wanted is None:
            continue
        place = component_place(index, pipeline.components.get(name) or ComponentSpec(name=name))
        places[name] = place.folder
        file = next((place.folder / file for file in CONFIG_FILES if (place.folder / file).is_file()), None)
        if file is not None:
            configs[name] = read_json(file)
        files = (place.file,) if place.file is not None else weight_files(place.folder, pipeline.model.variant)
        dtypes[name] = _dtype(pipeline, name, own_dtype(tuple(one for one in files if one.suffix == SAFETENSORS)))
    return Described(index, True, configs, dtypes, places)


def _from_sheet(pipeline: PipelineSpec, sheet: Sheet) -> Described:
    components: dict[str, ClassName | None] = {name: ClassName(*part.class_name) for name, part in sheet.parts.items()}
    index = ModelIndex(Path(sheet.repo), ClassName("diffusers", sheet.pipeline_class), components, dict(sheet.options))
    configs = {name: part.config for name, part in sheet.parts.items()}
    dtypes = {name: _dtype(pipeline, name, part.dtype) for name, part in sheet.parts.items()}
    return Described(index, False, configs, dtypes)


def _dtype(pipeline: PipelineSpec, name: str, stored: str | None) -> str:
    component = pipeline.components.get(name)
    asked = component.dtype if component is not None else None
    return asked or pipeline.model.dtype or stored or "float32"
