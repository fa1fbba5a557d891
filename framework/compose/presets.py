"""What every shipped preset would do with a pipeline: the placements that a plan has to beat. No torch."""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import cache

from framework.compose.groups import find_file, options_of
from framework.compose.machine_rules import AUTO
from framework.compose.performance import PRESET
from framework.compose.provenance import leaves_of
from framework.compose.residency import resolve
from framework.compose.settings import Components
from framework.compose.sources import Entry, MachineFacts, Sources
from framework.compose.yaml_file import dotted, read_document
from framework.errors import ConfigError, Origin
from framework.spec import Placement

OWN = "pipeline"
"""Stands for the pipeline's own defaults, which are what the empty preset leaves."""


def preset_placements(
    sources: Sources, components: Components, machine: MachineFacts | None
) -> dict[str, Mapping[str, Placement]]:
    """Return the placements of each shipped preset below the user's own keys; one that cannot be had is left out."""
    found = {}
    user = tuple(entry for entry in sources.user if entry.key not in ("performance_mode", "mode"))
    for name in options_of(PRESET):
        if name == AUTO:
            continue
        own = replace(sources, user=user, preset=_entries(name), preset_name=name, performance_mode=None)
        try:
            resolution = resolve(own, components, machine)
        except ConfigError:
            continue  # the user's own keys do not go with it
        found[OWN if not own.preset else name] = resolution.placements
    return found


@cache
def _entries(name: str) -> tuple[Entry, ...]:
    return tuple(_read(name))


def _read(name: str) -> Iterator[Entry]:
    path = find_file(PRESET, name)
    assert path is not None
    data = read_document(path).data or {}
    for part in ("modes", "layerwise"):
        for keys, value in leaves_of(data.get(part) or {}, (PRESET, part)):
            if value not in (None, {}):
                yield Entry(dotted(keys), value, Origin("preset", f"{PRESET}={name}"))
