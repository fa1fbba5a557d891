"""Where every value came from: files in merge order, then the command line. No torch, no Hydra."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from framework.compose.overrides import Override
from framework.compose.yaml_file import Document, KeyPath, dotted
from framework.errors import Origin
from framework.paths import CONF

USER, PRESET, PIPELINE, DEFAULT = "user", "preset", "pipeline", "default"


class LayerLike(Protocol):
    """One file in merge order; see `hydra_compose.Layer`."""

    @property
    def config_path(self) -> str: ...
    @property
    def package(self) -> str: ...
    @property
    def document(self) -> Document: ...


@dataclass(frozen=True, slots=True)
class Setting:
    """One assignment of a leaf, as written."""

    value: Any
    origin: Origin


@dataclass(slots=True)
class Provenance:
    """`settings` lists every assignment of a leaf, lowest first; `places` the last place of every key path."""

    settings: dict[str, list[Setting]] = field(default_factory=dict)
    places: dict[KeyPath, str] = field(default_factory=dict)

    def where(self, path: KeyPath) -> str:
        """The place that set the longest prefix of `path`; empty when nobody did. A key of a file may hold dots."""
        whole: KeyPath = (dotted(path),)
        if whole in self.places:
            return self.places[whole]
        while path:
            if path in self.places:
                return self.places[path]
            path = path[:-1]
        return ""

    def locate(self, key: str) -> str:
        """The same for a dotted key such as `stages.a.after[0]`."""
        return self.where(split_key(key))

    def origin(self, key: str) -> Origin | None:
        settings = self.settings.get(key)
        return settings[-1].origin if settings and settings[-1].value is not None else None

    def origins(self) -> dict[str, Origin]:
        """Dotted key -> origin of every leaf that somebody set."""
        found = {key: self.origin(key) for key in self.settings}
        return {key: origin for key, origin in found.items() if origin is not None}

    def put(self, path: KeyPath, value: Any, origin: Origin) -> None:
        if path in self.places:
            for other in [known for known in self.places if len(known) > len(path) and known[: len(path)] == path]:
                del self.places[other]
        for end in range(1, len(path)):
            parent = path[:end]
            if parent not in self.places or self.settings.pop(dotted(parent), []):
                self.places[parent] = origin.where
        self.places[path] = origin.where
        self.settings.setdefault(dotted(path), []).append(Setting(value, origin))

    def prune(self, data: Mapping[str, Any]) -> None:
        """Forget leaves that the composed config does not have any more."""
        leaves = {dotted(path) for path, _ in leaves_of(data, ())}
        for key in [key for key in self.settings if key not in leaves]:
            del self.settings[key]


def trace(layers: Sequence[LayerLike], overrides: Sequence[Override], chosen: Mapping[str, Override]) -> Provenance:
    """Follow every assignment; `chosen` holds the group overrides by group, for messages about a whole group."""
    provenance = Provenance()
    for layer in layers:
        _add_file(provenance, layer)
    for group, override in chosen.items():
        provenance.places.setdefault((group,), override.where)
    for override in overrides:
        if override.kind in ("value", "requests"):
            _add_override(provenance, override)
    return provenance


def _add_file(provenance: Provenance, layer: LayerLike) -> None:
    document = layer.document
    prefix: KeyPath = tuple(layer.package.split(".")) if layer.package else ()
    name = layer_name(layer)
    data = document.data or {}
    content = {key: value for key, value in data.items() if not (key == "defaults" and isinstance(value, list))}
    for path, value in leaves_of(content, ()):
        provenance.put((*prefix, *path), value, Origin(name, document.where(path)))
    for path in document.lines:
        if path and path[0] in content:
            provenance.places[(*prefix, *path)] = document.where(path)


def _add_override(provenance: Provenance, override: Override) -> None:
    origin = Origin(USER, override.where)
    for key, value in override.leaves():
        provenance.put(split_key(key), value, origin)
    path = split_key(override.key)
    provenance.places[path] = override.where


def layer_name(layer: LayerLike) -> str:
    """The layer of KEYS that a file belongs to."""
    group = layer.config_path.partition("/")[0] if "/" in layer.config_path else ""
    if group == "pipeline":
        return PIPELINE
    if group == "residency":
        return PRESET
    packaged = layer.document.path.is_relative_to(CONF)
    return DEFAULT if packaged and group != "experiment" else USER


def leaves_of(value: Any, path: KeyPath) -> Iterator[tuple[KeyPath, Any]]:
    """Yield (path, value) of every leaf of nested mappings; lists and empty mappings are leaves."""
    if isinstance(value, Mapping) and value:
        for key, inner in value.items():
            yield from leaves_of(inner, (*path, key))
    elif path:
        yield path, value


def split_key(key: str) -> KeyPath:
    """`stages.a.after[0]` is `("stages", "a", "after", 0)`."""
    parts: list[str | int] = []
    for part in key.split("."):
        name, *indexes = part.split("[")
        if name:
            parts.append(name)
        parts += [int(index.rstrip("]")) for index in indexes if index.rstrip("]").isdigit()]
    return tuple(parts)
