"""What a run needs of which repository of the hub, and whether it is here already. No torch, no connection."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from framework.errors import LoadError
from framework.loading.chosen_files import chosen_weights, missing_shards, wanted_files
from framework.loading.index import ModelIndex, read_index
from framework.loading.needed import WHOLE, has_weights, needed_components
from framework.loading.places import CONFIG_FILE, choose_adapter, hub_source
from framework.loading.source import (
    EMBEDDED_PREFIX,
    INDEX_FILE,
    PICKLE_SUFFIXES,
    SAFETENSORS,
    is_hub_name,
    parse_hub_path,
)
from framework.spec import LoraSpec, ModelSpec, PipelineSpec

Read = Callable[[str], Path]
"""Fetches one small file of the repository and returns where it is."""


class Need(Protocol):
    """Files wanted of one repository; `key` is the config's key that asks for them."""

    @property
    def repo(self) -> str: ...
    @property
    def revision(self) -> str | None: ...
    @property
    def key(self) -> str: ...

    def is_here(self, snapshot: Path, strict: bool = True) -> bool:
        """Whether the cached `snapshot` has everything.

        A component may lack the wanted variant, which only the hub knows: `strict` takes that for missing.
        """

    def choose(self, names: Sequence[str], read: Read) -> list[str]:
        """Return the files to fetch out of those the repository has. Raises `LoadError` for what it lacks."""


@dataclass(frozen=True, slots=True)
class PipelineFiles:
    """The model itself: its index and what `used` needs of it."""

    pipeline: PipelineSpec
    used: frozenset[str]
    key: str = "pipeline.model.source"

    @property
    def repo(self) -> str:
        return self.pipeline.model.source

    @property
    def revision(self) -> str | None:
        return self.pipeline.model.revision

    def is_here(self, snapshot: Path, strict: bool = True) -> bool:
        if not (snapshot / INDEX_FILE).is_file():
            return False
        index = read_index(snapshot)
        return all(
            _folder_is_here(snapshot / name, self.pipeline.model, self._weights_of(index, name), strict)
            for name in self._components(index)
        )

    def choose(self, names: Sequence[str], read: Read) -> list[str]:
        if INDEX_FILE not in names:
            raise LoadError(f"{self.key}: '{self.repo}' holds no {INDEX_FILE}, so it is no diffusers pipeline")
        index = read_index(read(INDEX_FILE).parent)
        chosen = [INDEX_FILE, *self._code(names)]
        for name in self._components(index):
            chosen += _of_folder(self.key, self.repo, names, name, self.pipeline.model, self._weights_of(index, name))
        return chosen

    def _components(self, index: ModelIndex) -> list[str]:
        """What to take from this repository; a component with a folder of its own elsewhere is not among it."""
        found = []
        for name in needed_components(self.pipeline, index, self.used):
            spec = self.pipeline.components.get(name)
            if index.components.get(name) and (spec is None or spec.source is None or self._is_file(name)):
                found.append(name)
        return found

    def _is_file(self, name: str) -> bool:
        spec = self.pipeline.components.get(name)
        return bool(spec and spec.source and spec.source.endswith((SAFETENSORS, ".gguf")))

    def _weights_of(self, index: ModelIndex, name: str) -> bool:
        wanted = index.components.get(name)
        used = name in self.used or self.pipeline.backend == WHOLE
        return used and wanted is not None and has_weights(wanted) and not self._is_file(name)

    def _code(self, names: Iterable[str]) -> list[str]:
        return [name for name in names if self.pipeline.model.trust_remote_code and name.endswith(".py")]


@dataclass(frozen=True, slots=True)
class ComponentFiles:
    """One component out of another repository: its folder, its root, or a single file."""

    name: str
    repo: str
    revision: str | None
    path: str
    model: ModelSpec
    is_file: bool

    @property
    def key(self) -> str:
        return f"pipeline.components.{self.name}.source"

    def is_here(self, snapshot: Path, strict: bool = True) -> bool:
        if self.is_file:
            return (snapshot / self.path).is_file()
        folders = [snapshot / folder for folder in self._folders() if (snapshot / folder / CONFIG_FILE).is_file()]
        return any(_folder_is_here(folder, self.model, True, strict) for folder in folders)

    def choose(self, names: Sequence[str], read: Read) -> list[str]:
        if self.is_file:
            if self.path not in names:
                raise LoadError(f"{self.key}: '{self.repo}' has no file '{self.path}'")
            return [self.path]
        for folder in self._folders():
            if f"{folder}/{CONFIG_FILE}".removeprefix("/") in names:
                return _of_folder(self.key, self.repo, names, folder, self.model, True)
        raise LoadError(f"{self.key}: '{self.repo}' has no {CONFIG_FILE} in '{self.path or self.name}'")

    def _folders(self) -> tuple[str, ...]:
        head = f"{self.path}/" if self.path else ""
        return (f"{head}{self.name}", self.path)


@dataclass(frozen=True, slots=True)
class AdapterFiles:
    """The one file of an adapter."""

    number: int
    repo: str
    revision: str | None
    path: str

    @property
    def key(self) -> str:
        return f"loras[{self.number}].source"

    def is_here(self, snapshot: Path, strict: bool = True) -> bool:
        found = snapshot / self.path
        return found.is_file() or (found.is_dir() and any(found.glob(f"*{SAFETENSORS}")))

    def choose(self, names: Sequence[str], read: Read) -> list[str]:
        if self.path in names:
            return [self.path]
        inside = _inside(names, self.path)
        files = [name for name in inside if name.endswith(SAFETENSORS)]
        chosen = choose_adapter(f"{self.repo}/{self.path}".rstrip("/"), files)
        return [inside[chosen]]


def needs_of(pipeline: PipelineSpec, used: frozenset[str], loras: Sequence[LoraSpec] = ()) -> list[Need]:
    """Return what the run needs from the hub, whether it is here or not; local places are not among it."""
    needs: list[Need] = []
    source = pipeline.model.source
    if not source.startswith(EMBEDDED_PREFIX) and is_hub_name(source) and not Path(source).is_dir():
        needs.append(PipelineFiles(pipeline, used))
    for name, component in pipeline.components.items():
        hub = hub_source(component)
        if hub is not None and name in used:
            needs.append(ComponentFiles(name, hub.repo, hub.revision, hub.path, pipeline.model, hub.is_file))
    for number, lora in enumerate(loras):
        place = None if lora.source.exists() else parse_hub_path(lora.source.as_posix())
        if place is not None:
            needs.append(AdapterFiles(number, place.repo, place.revision, place.path))
    return needs


def _folder_is_here(folder: Path, model: ModelSpec, with_weights: bool, strict: bool) -> bool:
    names = [file.name for file in folder.glob("*") if file.exists()]
    if not with_weights:
        return bool(names)
    weights = chosen_weights(names, model.variant)
    if not weights and model.allow_pickle:
        weights = tuple(name for name in names if name.endswith(PICKLE_SUFFIXES))
    if strict and model.variant and not any(f".{model.variant}" in name for name in weights):
        return False
    return bool(weights) and not missing_shards(weights)


def _of_folder(
    key: str, repo: str, names: Sequence[str], folder: str, model: ModelSpec, with_weights: bool
) -> list[str]:
    inside = _inside(names, folder)
    chosen = wanted_files(inside, model.variant, with_weights=with_weights, pickles=model.allow_pickle)
    weights = [name for name in chosen if name.endswith((SAFETENSORS, *PICKLE_SUFFIXES))]
    if with_weights and not weights:
        raise LoadError(f"{key}: '{repo}' has {_instead(inside)} for '{folder or 'its root'}'")
    lacking = missing_shards(weights)
    if lacking:
        raise LoadError(f"{key}: '{repo}' lacks '{folder}/{lacking[0]}', a shard of its weights")
    return [inside[name] for name in chosen]


def _instead(inside: Iterable[str]) -> str:
    """What a folder holds that is not what was asked for, with the key that would take it."""
    names = sorted(inside)
    if any(name.endswith(SAFETENSORS) for name in names):
        variants = ", ".join(name for name in names if name.endswith(SAFETENSORS))
        return f"only weights of a variant ({variants}; choose it with pipeline.model.variant)"
    if any(name.endswith(PICKLE_SUFFIXES) for name in names):
        return "only pickles, which are not read (pipeline.model.allow_pickle=true has their tensors read),"
    return "no weights"


def _inside(names: Iterable[str], folder: str) -> dict[str, str]:
    """Names directly inside `folder` -> full names."""
    head = f"{folder}/" if folder else ""
    found = {name.removeprefix(head): name for name in names if name.startswith(head)}
    return {short: name for short, name in found.items() if "/" not in short}
