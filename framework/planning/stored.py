"""What is known of a component's stored weights: from its folder or file, from the hub, else from a sheet. No torch."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from framework.errors import ConfigError, LoadError
from framework.loading.headers import pickle_files, read_header, weight_files
from framework.loading.index import CONFIG_FILES, ClassName, ModelIndex, read_index, read_json
from framework.loading.places import component_place, hub_source
from framework.loading.source import GGUF, SAFETENSORS, is_hub_name, locate_model
from framework.paths import expand
from framework.planning.gguf_file import read_gguf
from framework.planning.remote import remote_sheet
from framework.planning.sheets import EMPTY, Part, Sheet, find_sheet
from framework.planning.tensors import Tensor, from_header, main_dtype
from framework.spec import ComponentSpec, ModelSpec, PipelineSpec


@dataclass(frozen=True, slots=True, kw_only=True)
class Stored:
    """Stored weights of one component. `tensors` empty: their names are not known, `file_bytes` may still be."""

    class_name: str | None = None
    config: Mapping[str, Any] = field(default_factory=lambda: EMPTY)
    tensors: tuple[Tensor, ...] = ()
    file_bytes: int | None = None
    source: str = "unknown"
    notes: tuple[str, ...] = ()


def find_stored(pipeline: PipelineSpec, names: Sequence[str], *, connect: bool = True) -> dict[str, Stored]:
    """Return what is known of each named component; one that the checkpoint leaves out is not in it.

    Nothing is raised for what is missing, broken or unreachable: that component is unknown, with a note that says why.
    """
    base = _Base.of(pipeline.model, names, connect)
    found = {}
    for name in names:
        component = pipeline.components.get(name) or ComponentSpec(name=name)
        stored = _component(base, pipeline.model, component, connect)
        if stored is not None:
            found[name] = stored
    return found


@dataclass(frozen=True, slots=True)
class _Base:
    """The checkpoint itself: its index where it is here, else the sheet that stands in for it."""

    index: ModelIndex | None
    sheet: Sheet | None
    source: str
    notes: tuple[str, ...]

    @classmethod
    def of(cls, model: ModelSpec, names: Sequence[str], connect: bool) -> "_Base":
        try:
            return cls(read_index(locate_model(model)), None, "headers", ())
        except (LoadError, ConfigError) as error:
            if not is_hub_name(model.source):
                return cls(None, None, "unknown", (str(error),))
        sheet, source, notes = _named_sheet(model.source, model.revision, model.variant, names, connect)
        return cls(None, sheet, source, notes)


def _named_sheet(
    repo: str, revision: str | None, variant: str | None, names: Sequence[str], connect: bool
) -> tuple[Sheet | None, str, tuple[str, ...]]:
    """The sheet of a repository that is not here: read from the hub, else the shipped one."""
    shipped = find_sheet(repo)
    notes: tuple[str, ...] = ()
    if connect:
        try:
            remote = remote_sheet(repo, revision, variant, names)
        except LoadError as error:
            remote, notes = None, (str(error),)
        if remote is not None:
            return remote, f"hub:{repo}", ()
    if shipped is None:
        return None, "unknown", notes or (f"'{repo}' is not on this machine and no sheet of it is shipped",)
    return _in_variant(shipped, variant), f"sheet:{repo}", notes


def _in_variant(sheet: Sheet, variant: str | None) -> Sheet:
    """The sheet as its variant stores it."""
    dtype = sheet.variants.get(variant or "")
    if dtype is None:
        return sheet
    return replace(sheet, parts={name: _part_in(part, dtype) for name, part in sheet.parts.items()})


def _part_in(part: Part, dtype: str) -> Part:
    return replace(part, dtype=dtype, tensors=tuple(tensor.cast(dtype) for tensor in part.tensors))


def _component(base: _Base, model: ModelSpec, component: ComponentSpec, connect: bool) -> Stored | None:
    own = _own(base, component)
    hub = hub_source(component)
    try:
        if base.index is not None and (component.source is None or _is_here(base.index, component)):
            return _from_place(base.index, model, component)
        if component.source is not None and hub is None:
            return _from_local_source(own, model, component)
    except (LoadError, ConfigError) as error:
        return Stored(notes=(str(error),))
    if hub is None:
        return own
    if hub.is_file:
        note = f"pipeline.components.{component.name}.source: the size of '{component.source}' is not known yet"
        return Stored(class_name=own.class_name if own else None, config=own.config if own else EMPTY, notes=(note,))
    part = hub.path.rpartition("/")[2] or component.name
    sheet, source, notes = _named_sheet(hub.repo, hub.revision, model.variant, (part,), connect)
    if sheet is None or part not in sheet.parts:
        return Stored(notes=notes or (f"'{component.source}' has no component '{part}'",))
    return _from_part(sheet.parts[part], source, notes)


def _own(base: _Base, component: ComponentSpec) -> Stored | None:
    """What the checkpoint itself has, or a stand-in for it, under the component's name."""
    if base.index is not None:
        wanted = base.index.components.get(component.name)
        return None if wanted is None else Stored(class_name=wanted.name)
    if base.sheet is None:
        return Stored(notes=base.notes)
    part = base.sheet.parts.get(component.name)
    if part is None:
        return None if component.optional else Stored(notes=(f"{base.source} has no '{component.name}'",))
    return _from_part(part, base.source, base.notes)


def _from_part(part: Part, source: str, notes: tuple[str, ...]) -> Stored:
    return Stored(
        class_name=part.class_name[1],
        config=part.config,
        tensors=part.tensors,
        file_bytes=sum(tensor.size_bytes for tensor in part.tensors),
        source=source,
        notes=notes,
    )


def _is_here(index: ModelIndex, component: ComponentSpec) -> bool:
    try:
        component_place(index, component)
    except LoadError:
        return hub_source(component) is None  # then the error is the user's to read
    return True


def _from_place(index: ModelIndex, model: ModelSpec, component: ComponentSpec) -> Stored | None:
    wanted = index.components.get(component.name)
    if wanted is None and component.source is None:
        note = f"{index.folder}: the checkpoint has no component '{component.name}'"
        return None if component.optional else Stored(notes=(note,))
    place = component_place(index, component)
    stored = _from_folder(wanted, place.folder, place.file, model)
    sheet = find_sheet(model.source) if component.source is None and is_hub_name(model.source) else None
    if sheet is None or component.name not in sheet.parts:
        return stored
    shipped = _in_variant(sheet, model.variant).parts[component.name]
    return replace(stored, tensors=in_order(stored.tensors, shipped), notes=stored.notes + differences(stored, shipped))


def _from_local_source(own: Stored | None, model: ModelSpec, component: ComponentSpec) -> Stored:
    """A component in a folder or file of its own beside a checkpoint that is not here."""
    path = expand(component.source or "")
    cls = ClassName("", own.class_name) if own and own.class_name else None
    if path.is_file():
        stored = _from_folder(cls, path.parent / "-", path, model)
        return replace(stored, config=own.config if own else EMPTY)
    inner = path / component.name
    return _from_folder(cls, inner if inner.is_dir() else path, None, model)


def _from_folder(cls: ClassName | None, folder: Path, file: Path | None, model: ModelSpec) -> Stored:
    """Read the headers of a component's files; pickles and other formats tell their size on disk only."""
    config_file = next((folder / name for name in CONFIG_FILES if (folder / name).is_file()), None)
    config = read_json(config_file) if config_file is not None else {}
    name = cls.name if cls is not None else config.get("_class_name")
    files = (file,) if file is not None else weight_files(folder, model.variant)
    if not files and not folder.is_dir():
        raise LoadError(f"the folder '{folder}' does not exist")
    others = [path for path in files or pickle_files(folder) if path.suffix != SAFETENSORS]
    if others and all(path.suffix == GGUF for path in others):
        tensors = tuple(tensor for path in others for tensor in read_gguf(path))
        size = sum(path.stat().st_size for path in others)
        return Stored(class_name=name, config=config, tensors=tensors, file_bytes=size, source="headers")
    if others:
        size = sum(path.stat().st_size for path in others)
        note = f"{others[0].name}: only its size on disk is known, not its layers"
        return Stored(class_name=name, config=config, file_bytes=size, source="files", notes=(note,))
    if not files:
        raise LoadError(f"the folder '{folder}' holds no weights")
    tensors = tuple(tensor for path in files for tensor in from_header(read_header(path)))
    size = sum(path.stat().st_size for path in files)
    return Stored(class_name=name, config=config, tensors=tensors, file_bytes=size, source="headers")


def in_order(tensors: Sequence[Tensor], shipped: Part) -> tuple[Tensor, ...]:
    """Put the tensors of a file, which are sorted by size, into the module's order as far as a sheet knows it."""
    place = {tensor.name: number for number, tensor in enumerate(shipped.tensors)}
    return tuple(sorted(tensors, key=lambda tensor: place.get(tensor.name, len(place))))


def differences(stored: Stored, shipped: Part) -> tuple[str, ...]:
    """Say in one line where a checkpoint's headers are not what the shipped sheet says."""
    if not stored.tensors:
        return ()
    real, told = {t.name: t for t in stored.tensors}, {t.name: t for t in shipped.tensors}
    missing = [name for name in told if name not in real]
    extra = [name for name in real if name not in told]
    shapes = [name for name in told if name in real and told[name].shape != real[name].shape]
    counts = ((missing, "in the sheet only"), (extra, "in the checkpoint only"), (shapes, "of another shape"))
    found = [f"{len(names)} tensors {what} (such as {names[0]})" for names, what in counts if names]
    own, shipped_dtype = main_dtype(stored.tensors), shipped.dtype
    if own != shipped_dtype:
        found.append(f"stored in {own} instead of {shipped_dtype}")
    if stored.class_name not in (None, shipped.class_name[1]):
        found.append(f"class {stored.class_name} instead of {shipped.class_name[1]}")
    return (f"the shipped sheet differs from the checkpoint: {'; '.join(found)}",) if found else ()
