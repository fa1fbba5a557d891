"""Restores a config that a record stored, as untrusted data, with overrides on top. No torch."""

from collections.abc import Mapping, Sequence
from typing import Any

from framework.compose.arguments import Flags
from framework.compose.groups import check_choices, config_folders
from framework.compose.overrides import Override
from framework.compose.provenance import DEFAULT, PIPELINE, PRESET, USER, Provenance, leaves_of
from framework.compose.requests import put_requests
from framework.compose.yaml_file import dotted
from framework.errors import ConfigError, Origin

SHOWN = "the saved config"
_LAYERS = frozenset({USER, PRESET, PIPELINE, DEFAULT})


def restore(
    config: Mapping[str, Any], words: Sequence[Override], origins: Mapping[str, Origin], own: bool = False
) -> tuple[dict[str, Any], Provenance]:
    """Return plain data and provenance of `config` with `words` applied; nothing in `config` is interpolated.

    `own`: this very process has composed it, so that its values stand where `origins` say.
    """
    from omegaconf import OmegaConf

    from framework.compose.hydra_compose import HIDDEN_DEFAULTS, Journal
    from framework.compose.resolve import apply_overrides, to_plain

    journal = Journal(())
    provenance = Provenance()
    data = {str(key): value for key, value in config.items()}
    _trace_saved(provenance, data, origins, own)
    _put_groups(data, provenance, words)
    pipeline = data.get("pipeline")
    if isinstance(pipeline, Mapping):
        data["pipeline"] = {HIDDEN_DEFAULTS if key == "defaults" else key: value for key, value in pipeline.items()}
    restored = OmegaConf.create(_hidden(data, journal))
    for word in words:
        if word.kind in ("value", "requests"):
            for key, value in word.leaves():
                provenance.put(tuple(key.split(".")), value, Origin(USER, word.where))
    apply_overrides(restored, words, journal)
    plain = to_plain(restored, journal, provenance.where)

    put_requests(plain, words, provenance)
    provenance.prune(plain)
    return plain, provenance


def _trace_saved(provenance: Provenance, data: Mapping[str, Any], origins: Mapping[str, Origin], own: bool) -> None:
    for path, value in leaves_of(data, ()):
        key = dotted(path)
        known = origins.get(key)
        layer = known.layer if known is not None and known.layer in _LAYERS else _layer_of(key)
        first = known.where if known is not None else ""
        where = first if own else f"{SHOWN}, first set at {first}" if first else SHOWN
        provenance.put(path, value, Origin(layer, where))


def _layer_of(key: str) -> str:
    head = key.partition(".")[0]
    return {"pipeline": PIPELINE, "residency": PRESET}.get(head, USER)


def _put_groups(data: dict[str, Any], provenance: Provenance, words: Sequence[Override]) -> None:
    """Replace the groups that the command line chooses anew."""
    from framework.compose.hydra_compose import compose_files
    from framework.compose.provenance import trace
    from framework.compose.resolve import to_plain

    folders = config_folders(Flags(), words)
    check_choices(words, folders)
    for word in words:
        if word.kind != "group":
            continue
        if word.key == "experiment":
            raise ConfigError.of("experiment", "a recorded run takes no experiment on top", word.where)
        composition = compose_files([f"{word.key}={word.value}"], folders)
        fresh = trace(composition.layers, [], {word.key: word})
        data[word.key] = to_plain(composition.config, composition.journal, fresh.where)[word.key]
        _replace_group(provenance, fresh, word.key)


def _replace_group(provenance: Provenance, fresh: Provenance, group: str) -> None:
    for key in [key for key in provenance.settings if key.split(".")[0] == group]:
        del provenance.settings[key]
    for path in [path for path in provenance.places if path[0] == group]:
        del provenance.places[path]
    provenance.settings |= {key: value for key, value in fresh.settings.items() if key.split(".")[0] == group}
    provenance.places |= {path: value for path, value in fresh.places.items() if path[0] == group}


def _hidden(value: Any, journal: Any) -> Any:
    """Hide every text that OmegaConf would read anything into."""
    if isinstance(value, Mapping):
        return {str(key): _hidden(inner, journal) for key, inner in value.items()}
    if isinstance(value, (list, tuple)):
        return [_hidden(inner, journal) for inner in value]
    if isinstance(value, str):
        return journal.hide(value) if "${" in value or value == "???" else str(value)
    if value is None or isinstance(value, (bool, int, float)):
        return value
    raise ConfigError.of("", f"a value of kind {type(value).__name__} cannot be in a saved config", SHOWN)
