"""Builds what the residency resolver reads: single settings, kept apart by layer. No torch, no Hydra."""

from collections.abc import Iterator, Mapping
from typing import Any

from framework.compose.legacy import legacy_name
from framework.compose.provenance import PIPELINE, PRESET, USER, Provenance, Setting, leaves_of
from framework.compose.selectors import group_of
from framework.compose.sources import ComponentFacts, Entry, Sources
from framework.compose.yaml_file import dotted
from framework.errors import Origin
from framework.graph import Graph
from framework.spec import PipelineSpec

PRESET_KEYS = ("residency.modes.", "residency.layerwise.")
PIPELINE_KEYS = ("pipeline.defaults.residency.", "pipeline.defaults.layerwise.")
_UNKNOWN = Origin(USER, "")


def build_sources(data: Mapping[str, Any], provenance: Provenance) -> Sources:
    """Split the composed `data` into the layers of KEYS by where each value came from."""
    settings = [_final(key, value, provenance) for key, value in _leaves(data)]
    lower = PRESET_KEYS + PIPELINE_KEYS
    user = [
        entry
        for entry in settings
        if _is_user_key(entry.key) or (entry.key.startswith(lower) and entry.origin.layer == USER)
    ]
    mode = next((entry for entry in settings if entry.key == "performance_mode"), None)
    preset = data.get("residency") or {}
    hints = (data.get("pipeline") or {}).get("hints") or {}
    return Sources(
        user=tuple(user),
        preset=tuple(_lower(settings, PRESET_KEYS, PRESET, provenance)),
        pipeline=tuple(_lower(settings, PIPELINE_KEYS, PIPELINE, provenance)),
        performance_mode=mode,
        preset_name=preset.get("name") or "none",
        preset_where=provenance.places.get(("residency",), ""),
        hints={key: value for key, value in hints.items() if value is not None and key != "download_gib"},
    )


def component_facts(
    pipeline: PipelineSpec, graph: Graph, quantized: Mapping[str, str] | None = None
) -> dict[str, ComponentFacts]:
    """What the resolver may know of each component before loading; `quantized` names a method by component."""
    used = graph.used_components()
    return {
        name: ComponentFacts(
            group=group_of(name, component.group),
            stack_lengths=component.num_layers,
            quantized=(quantized or {}).get(name),
            used=name in used,
        )
        for name, component in pipeline.components.items()
    }


def _leaves(data: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """Every leaf somebody gave a value; an empty map says nothing."""
    for path, value in leaves_of(data, ()):
        if value is not None and value != {}:
            yield dotted(path), value


def _final(key: str, value: Any, provenance: Provenance) -> Entry:
    return Entry(key, value, provenance.origin(key) or _UNKNOWN)


def _is_user_key(key: str) -> bool:
    head = key.partition(".")[0]
    return head in ("component_residency", "layerwise") or (
        head != "performance_mode" and legacy_name(head) is not None
    )


def _lower(settings: list[Entry], prefixes: tuple[str, ...], layer: str, provenance: Provenance) -> Iterator[Entry]:
    """Entries of a lower layer: what its files say, also where a higher layer says something else."""
    for entry in settings:
        if not entry.key.startswith(prefixes):
            continue
        if entry.origin.layer != USER:
            yield entry
            continue
        own = _last_below(provenance.settings.get(entry.key, []), layer)
        if own is not None:
            yield Entry(entry.key, own.value, own.origin)


def _last_below(settings: list[Setting], layer: str) -> Setting | None:
    """The last assignment by a file of `layer`, unless it is unset or an interpolation nobody resolved."""
    own = [setting for setting in settings if setting.origin.layer == layer]
    if not own or own[-1].value is None or (isinstance(own[-1].value, str) and "${" in own[-1].value):
        return None
    return own[-1]
