"""Where the weights of one component or adapter are: a folder, or a single file beside a folder. No torch.

Nothing is downloaded here and no connection is tried; what is missing is named with the way to get it.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from framework.errors import LoadError
from framework.loading.index import ModelIndex
from framework.loading.source import (
    EMBEDDED_PREFIX,
    INDEX_FILE,
    PICKLE_SUFFIXES,
    SAFETENSORS,
    SOURCE_KEY,
    WEIGHT_SUFFIXES,
    HubPath,
    cached_snapshot,
    is_hub_name,
    locate_model,
    parse_hub_path,
)
from framework.paths import expand
from framework.spec import ComponentSpec, ModelSpec, PipelineSpec

CONFIG_FILE = "config.json"
ADAPTER_FILE = "pytorch_lora_weights.safetensors"  # diffusers' own name; preferred where a repository has several


@dataclass(frozen=True, slots=True)
class Place:
    """`folder` has the config; `file` holds the weights where they are not in the folder."""

    folder: Path
    file: Path | None = None


def component_place(index: ModelIndex, component: ComponentSpec) -> Place:
    """Return where `component` is: in the model's own folder, or where its `source` says.

    A source is a component's folder, a pipeline's folder, a `.safetensors` or `.gguf` file (its config is then the
    model's), or the same on the hub. Raises `LoadError` for a place that is not here or holds nothing.
    """
    own = Place(index.component_folder(component.name))
    if component.source is None:
        return own
    key = f"pipeline.components.{component.name}.source"
    if component.source.startswith(EMBEDDED_PREFIX):
        return Place(locate_model(ModelSpec(source=component.source)) / component.name)
    path = expand(component.source)
    if path.is_file():
        return Place(own.folder, _weights(key, path))
    if path.is_dir():
        return Place(_component_in(key, path, component.name))
    hub = parse_hub_path(component.source)
    if hub is None:
        raise LoadError(f"{key}: {_no_such(path)}")
    snapshot = cached_snapshot(hub.repo, hub.revision)
    found = snapshot / hub.path if snapshot is not None else None
    if found is None or not found.exists():
        raise LoadError(f"{key}: {not_here(component.source)}")
    if hub.is_file:
        return Place(own.folder, _weights(key, found))
    return Place(_component_in(key, found, component.name))


def missing_places(pipeline: PipelineSpec) -> Iterator[tuple[str, str]]:
    """Yield (key, what is wrong) of each local or embedded place that is not here; the hub's are fetched at need."""
    if not is_hub_name(pipeline.model.source):
        yield from _missing(SOURCE_KEY, ModelSpec(source=pipeline.model.source))
    for component in pipeline.components.values():
        source, key = component.source, f"pipeline.components.{component.name}.source"
        if source is not None and source.startswith(EMBEDDED_PREFIX):
            yield from _missing(key, ModelSpec(source=source))
        elif source is not None and parse_hub_path(source) is None and not expand(source).exists():
            yield key, _no_such(expand(source))


def _missing(key: str, model: ModelSpec) -> Iterator[tuple[str, str]]:
    try:
        locate_model(model)
    except LoadError as error:
        yield key, str(error).removeprefix(f"{SOURCE_KEY}: ")


def _no_such(path: Path) -> str:
    what = "file" if path.suffix in WEIGHT_SUFFIXES + PICKLE_SUFFIXES else "folder"
    return f"the {what} '{path}' does not exist"


def locate_adapter(source: Path) -> Path:
    """Return the file of an adapter: `source` itself, or where the hub's cache has it. Raises `LoadError`."""
    hub = None if source.exists() else parse_hub_path(source.as_posix())
    if hub is None:
        return source
    snapshot = cached_snapshot(hub.repo, hub.revision)
    found = snapshot / hub.path if snapshot is not None else None
    if found is None or not found.exists():
        raise LoadError(f"loras: {not_here(source.as_posix())}")
    if found.is_file():
        return found
    return found / choose_adapter(source.as_posix(), [file.name for file in found.glob(f"*{SAFETENSORS}")])


def choose_adapter(source: str, names: list[str]) -> str:
    """Return the one file of `names` to read. Raises `LoadError` where that is open."""
    if ADAPTER_FILE in names:
        return ADAPTER_FILE
    if len(names) == 1:
        return names[0]
    listed = ", ".join(sorted(names)[:8]) or "none"
    raise LoadError(f"loras: '{source}' must hold one {SAFETENSORS} file and has {listed}; name it: {source}/FILE")


def not_here(source: str) -> str:
    """What to say of a hub path that neither a folder nor the cache has."""
    return (
        f"'{source}' is not on this machine; get it with `framework download` and the same keys, or give a local path"
    )


def hub_source(component: ComponentSpec) -> HubPath | None:
    """The place on the hub that a component's `source` names, or None where it is local or not said."""
    if component.source is None or component.source.startswith(EMBEDDED_PREFIX):
        return None
    return None if expand(component.source).exists() else parse_hub_path(component.source)


def _weights(key: str, file: Path) -> Path:
    if file.suffix not in WEIGHT_SUFFIXES:
        raise LoadError(f"{key}: '{file}' is no {' or '.join(WEIGHT_SUFFIXES)} file; convert it to safetensors")
    return file


def _component_in(key: str, folder: Path, name: str) -> Path:
    """The folder itself where it is a component's, else its subfolder `name`."""
    if (folder / CONFIG_FILE).is_file() and not (folder / INDEX_FILE).is_file():
        return folder
    if (folder / name).is_dir():
        return folder / name
    raise LoadError(f"{key}: '{folder}' holds neither a {CONFIG_FILE} nor a folder '{name}'")
