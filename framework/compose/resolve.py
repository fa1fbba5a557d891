"""Applies value overrides to what Hydra composed and turns it into plain data. Imports OmegaConf, no torch."""

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from framework.compose.hydra_compose import DEFAULTS, HIDDEN_DEFAULTS, Journal, first_line
from framework.compose.overrides import Override
from framework.compose.schema import Schema, branches_of, composed_schema, takes_numbers_only
from framework.compose.text import is_text_key
from framework.compose.yaml_file import KeyPath, dotted, typed_text
from framework.errors import ConfigError, Problem

Where = Callable[[KeyPath], str]


def apply_overrides(config: DictConfig, overrides: Sequence[Override], journal: Journal) -> None:
    """Put every `key=value` and `~key` of the command line into `config`, in order."""
    problems: list[Problem] = []
    for override in overrides:
        try:
            if override.kind == "value":
                _update(config, override, journal)
            elif override.kind == "delete":
                _delete(config, override)
        except ConfigError as error:
            problems += error.problems
    if problems:
        raise ConfigError(problems)


def _update(config: DictConfig, override: Override, journal: Journal) -> None:
    value = override.value
    if isinstance(value, str) and (is_text_key(override.key) or "${" not in value):
        value = journal.hide(value)
    if isinstance(value, list) and isinstance(_node(config, _hidden(override.key)), DictConfig):
        raise ConfigError.of(override.key, "expected a map of keys, got a list", override.where)
    try:
        OmegaConf.update(config, _hidden(override.key), value, merge=True, force_add=True)
    except (OmegaConfBaseException, AttributeError, TypeError, ValueError, AssertionError) as error:
        raise ConfigError.of(override.key, f"cannot be set: {first_line(error)}", override.where) from None


def _node(config: DictConfig, key: str) -> Any:
    """What stands under `key`; None where that is nothing, or an interpolation that leads nowhere."""
    try:
        return OmegaConf.select(config, key, throw_on_resolution_failure=False)
    except OmegaConfBaseException:
        return None


def _delete(config: DictConfig, override: Override) -> None:
    parent_key, _, name = _hidden(override.key).rpartition(".")
    parent = _node(config, parent_key) if parent_key else config
    if not isinstance(parent, DictConfig) or name not in parent:
        raise ConfigError.of(override.key, "there is nothing to remove", override.where)
    del parent[name]


def _hidden(key: str) -> str:
    """The key under which OmegaConf holds `key`; see `HIDDEN_DEFAULTS`."""
    parts = key.split(".")
    if parts[:2] == ["pipeline", DEFAULTS]:
        parts[1] = HIDDEN_DEFAULTS
    return ".".join(parts)


def to_plain(config: DictConfig, journal: Journal, where: Where) -> dict[str, Any]:
    """Resolve every interpolation and return plain data with the prompt texts put back.

    Raises `ConfigError` with every interpolation that cannot be resolved.
    """
    raw = OmegaConf.to_container(config, resolve=False)
    problems = list(_unresolvable(config, raw, (), where))
    if problems:
        raise ConfigError(problems)
    data = journal.reveal(_with_numbers(OmegaConf.to_container(config, resolve=True), raw, composed_schema()))
    assert isinstance(data, dict)
    pipeline = data.get("pipeline")
    if isinstance(pipeline, dict) and HIDDEN_DEFAULTS in pipeline:
        data["pipeline"] = {(DEFAULTS if key == HIDDEN_DEFAULTS else key): value for key, value in pipeline.items()}
    return data


def _with_numbers(value: Any, raw: Any, schema: Schema) -> Any:
    """Return `value` with numbers for the texts that interpolations, as `${oc.env:SEED}`, gave to keys of numbers."""
    if isinstance(value, dict) and isinstance(raw, dict):
        known, rest = schema.get("properties", {}), schema.get("additionalProperties")
        others = rest if isinstance(rest, dict) else {}
        names = {key: DEFAULTS if key == HIDDEN_DEFAULTS else key for key in value}
        return {key: _with_numbers(inner, raw.get(key), known.get(names[key], others)) for key, inner in value.items()}
    if isinstance(value, list) and isinstance(raw, list):
        items: Schema = next((branch["items"] for branch in branches_of(schema) if "items" in branch), {})
        return [_with_numbers(inner, own, items) for inner, own in zip(value, raw, strict=True)]
    if not isinstance(value, str) or not isinstance(raw, str) or "${" not in raw or not takes_numbers_only(schema):
        return value
    number = typed_text(value)
    return number if isinstance(number, (int, float)) and not isinstance(number, bool) else value


def _unresolvable(config: DictConfig, raw: Any, path: KeyPath, where: Where) -> Iterator[Problem]:
    items = raw.items() if isinstance(raw, dict) else enumerate(raw) if isinstance(raw, list) else ()
    for key, value in items:
        here = (*path, key)
        if isinstance(value, str) and "${" in value:
            try:
                OmegaConf.select(config, dotted(here), throw_on_missing=True, throw_on_resolution_failure=True)
            except (OmegaConfBaseException, RecursionError) as error:
                shown = _shown(here)
                yield Problem(dotted(shown), f"cannot resolve '{value}': {first_line(error)}", where(shown))
        else:
            yield from _unresolvable(config, value, here, where)


def _shown(path: KeyPath) -> KeyPath:
    return tuple(DEFAULTS if part == HIDDEN_DEFAULTS else part for part in path)
