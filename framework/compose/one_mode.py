"""A composed config with every component in one mode, whatever it says of placement itself. No torch."""

from collections.abc import Mapping
from copy import deepcopy
from typing import Any

from framework.compose.composer import Composed
from framework.compose.legacy import legacy_name
from framework.compose.provenance import PRESET, Provenance
from framework.errors import Origin

PLACING = ("component_residency", "performance_mode")
KNOBS = "layerwise"
STREAMED = "layerwise-offload"


def with_one_mode(composed: Composed, mode: str, said_by: str) -> Composed:
    """Return `composed` with `mode` as the preset of all components; one that cannot do it falls back, with a line.

    What the config says of placement is left out, the knobs of layerwise components only where they have no effect.
    `said_by` is told as the origin of the mode.
    """
    kept = {key: value for key, value in composed.data.items() if not _places(key, mode)}
    data = deepcopy(kept) | {"residency": {"name": mode, "modes": {"all": mode}}}
    pipeline = data.get("pipeline")
    if isinstance(pipeline, Mapping):
        data["pipeline"] = {**pipeline, "defaults": _without_placing(pipeline.get("defaults"))}
    settings = {key: list(found) for key, found in composed.provenance.settings.items()}
    provenance = Provenance(settings, dict(composed.provenance.places))
    provenance.settings.pop("residency.modes.all", None)
    provenance.put(("residency", "modes", "all"), mode, Origin(PRESET, said_by))
    provenance.prune(data)
    return Composed(data, provenance)


def _places(key: str, mode: str) -> bool:
    if key == KNOBS:
        return mode != STREAMED
    return key in PLACING or legacy_name(key) is not None


def _without_placing(defaults: Any) -> Any:
    if not isinstance(defaults, Mapping):
        return defaults
    return {key: value for key, value in defaults.items() if key not in ("residency", KNOBS)}
