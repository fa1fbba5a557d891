"""Repeats a recorded run: what a record decides, what only the user may, whether the frames are equal. No torch."""

import copy
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from framework.compose.arguments import Flags
from framework.compose.composer import Composed, check, compose_saved_data
from framework.errors import ConfigError, Origin, Problem
from framework.spec import OutputSpec, RequestSpec, RunSpec

MAX_SEED = 2**63 - 1
_TRUST = ("pipeline.model.trust_remote_code", "pipeline.model.allow_pickle")


def refuse_other_configs(flags: Flags) -> None:
    """Refuse flags that choose or print YAML files where a record is what the config comes from."""
    given = {"--config-dir": flags.config_dir, "--config-name": flags.config_name, "--cfg": flags.cfg}
    said = [name for name, value in {**given, "--info": flags.info}.items() if value]
    record = "--resume" if flags.resume else "--from" if flags.from_folder else None
    if record is not None and said:
        reason = f"{record} takes the config from a record and reads no YAML files"
        raise ConfigError(Problem(name, reason, hint="remove it") for name in said)


def spec_from_record(record: Mapping[str, Any], overrides: Sequence[str], in_place: bool = False) -> RunSpec:
    """Compose what `record` says with `overrides` on top; drawn seeds are repeated.

    A record comes from anywhere: it says what is made, not where it is written (unless the run is continued
    `in_place`), and it cannot trust code or pickles. Raises `ConfigError`.
    """
    composed, notes = composed_from_record(record, overrides, in_place)
    spec = check(composed)
    requests = with_recorded_seeds(spec.requests, record)
    said = any(word.lstrip("+").startswith(("output=", "output.root=")) for word in overrides)
    return replace(spec, requests=requests, notes=(*spec.notes, *(() if said else notes)))


def composed_from_record(
    record: Mapping[str, Any], overrides: Sequence[str], in_place: bool = False
) -> tuple[Composed, tuple[str, ...]]:
    """Return what `record` says with `overrides` on top, before its checks, and what was left out of it, in words."""
    config, notes = (dict(record["config"]), ()) if in_place else _without_place(record["config"])
    config = _without_trust(config, overrides)
    return compose_saved_data(config, overrides, _recorded_origins(record)), notes


def compare_frames(saved: Mapping[int, set[str]], record: Mapping[str, Any]) -> str:
    """Say whether the frames in `saved`, hashes by request, are all those of the record; sheets do not count."""
    compared = 0
    for index, request in enumerate(record["requests"]):
        then = set(_frame_hashes(request.get("outputs")))
        compared += len(then)
        if not then <= saved.get(index, set()):
            return f"request {index + 1}: the frames differ from the recorded ones"
    return "the frames equal the recorded ones" if compared else "the record holds no frames to compare with"


def recorded_frames(record: Mapping[str, Any]) -> dict[int, list[str]]:
    """Return the hashes of the frames in a record's outputs by request, in order; sheets do not count."""
    found = {index: _frame_hashes(request.get("outputs")) for index, request in enumerate(record["requests"])}
    return {index: hashes for index, hashes in found.items() if hashes}


def _frame_hashes(outputs: Any) -> list[str]:
    entries = [entry for entry in outputs if isinstance(entry, dict)] if isinstance(outputs, list) else []
    clips = [entry for entry in entries if not str(entry.get("path")).startswith("sheet")]
    return [found for entry in clips if isinstance(found := entry.get("frames_sha256"), str)]


def _without_place(config: Mapping[str, Any]) -> tuple[dict[str, Any], tuple[str, ...]]:
    """Drop where the recorded run wrote: its folder exists, and the root is the user's to choose."""
    output = config.get("output")
    if not isinstance(output, dict):
        return dict(config), ()
    root, usual = output.get("root"), str(OutputSpec().root)
    note = f"the recorded output root {root!r} is not used: results go to '{usual}' unless output.root says otherwise"
    place = {key: value for key, value in {"root": usual, "name": None}.items() if key in output}
    return {**config, "output": {**output, **place}}, () if root in (None, usual) else (note,)


def _without_trust(config: Mapping[str, Any], overrides: Sequence[str]) -> dict[str, Any]:
    """Refuse a record that trusts its model folder, unless the user says the same on the command line."""
    changed = copy.deepcopy(dict(config))
    pipeline = changed.get("pipeline")
    model = pipeline.get("model") if isinstance(pipeline, dict) else None
    if not isinstance(model, dict):
        return changed  # the schema refuses it
    for key in _TRUST:
        name = key.rpartition(".")[2]
        said = any(word.lstrip("+").startswith((f"{key}=", "pipeline=")) for word in overrides)
        if model.get(name) not in (None, False) and not said:
            raise ConfigError.of(key, "a record cannot say this", hint=f"if you trust the model, add {key}=true")
        if name in model:
            model[name] = False
    return changed


def _recorded_origins(record: Mapping[str, Any]) -> dict[str, Origin]:
    """The layers of the recorded run, so that what was the user's choice then still beats a preset."""
    recorded = record.get("provenance")
    pairs = recorded.items() if isinstance(recorded, dict) else ()
    return {
        key: Origin(_printable(origin.get("layer", "")), _printable(origin.get("where", "")))
        for key, origin in pairs
        if isinstance(origin, dict)
    }


def _printable(value: Any) -> str:
    """A message quotes it: one line, and nothing a terminal would obey."""
    return "".join(letter if letter.isprintable() else "?" for letter in str(value))


def with_recorded_seeds(requests: Sequence[RequestSpec], record: Mapping[str, Any]) -> tuple[RequestSpec, ...]:
    """A seed that was drawn is repeated; one that the config or the command line states stays."""
    recorded = [request.get("seed") for request in record["requests"]]
    seeded = []
    for index, request in enumerate(requests):
        seeds = recorded[index] if index < len(recorded) else None
        usable = request.seeds is None and _are_seeds(seeds, request.num_outputs)
        seeded.append(replace(request, seeds=tuple(seeds)) if usable and seeds else request)
    return tuple(seeded)


def _are_seeds(seeds: Any, count: int) -> bool:
    return (
        isinstance(seeds, list)
        and len(seeds) == count
        and all(type(seed) is int and 0 <= seed <= MAX_SEED for seed in seeds)
    )
