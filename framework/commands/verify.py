"""`verify`: whether a config makes the bytes of its all-resident reference, or of a record. torch in functions only."""

import json
import secrets
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from framework.commands.from_record import (
    composed_from_record,
    recorded_frames,
    refuse_other_configs,
    with_recorded_seeds,
)
from framework.commands.verify_text import describe, describe_json
from framework.compose.arguments import COMPOSING, Flags
from framework.compose.composer import check, compose_data
from framework.compose.one_mode import with_one_mode
from framework.errors import ConfigError, StageError, did_you_mean
from framework.graph import build_graph
from framework.outputs.folder import check_name, claim_folder
from framework.outputs.read_record import read_record
from framework.registry import STRATEGIES, fold_name
from framework.spec import RunSpec
from framework.verifying.verdict import Verdict, judge, judge_record

SUMMARY = "Run a config beside its all-resident reference, or again beside a record, and compare every byte."
EXAMPLES = (
    "framework verify device=sim residency=low_vram seed=3",
    "framework verify device=sim --modes all",
    "framework verify --from outputs/FOLDER",
)
ACCEPTED = COMPOSING | {"from_folder", "modes", "json"}
DIFFERENT = 1
EXIT_CODES = (
    "Exit codes: 0 equal, 1 different, 2 the request is wrong, 3 it cannot fit, 4 a run failed or proved nothing, "
    "130 interrupted."
)
ALL, RESIDENT, CONFIGURED = "all", "resident", "as configured"


def main(overrides: list[str], flags: Flags) -> int:
    """Run and compare; print a line for each config. The exit code is that of the worst."""
    refuse_other_configs(flags)
    record = read_record(Path(flags.from_folder)) if flags.from_folder else None
    composed = compose_data(overrides, flags) if record is None else composed_from_record(record, overrides)[0]
    if record is not None and not recorded_frames(record):
        raise ConfigError.of("--from", f"the record of '{flags.from_folder}' holds no frames to compare with")
    spec = _with_seeds(check(composed), record)
    check_name(spec.output)
    modes = modes_of(flags.modes)
    _refuse_what_proves_nothing(spec, modes, record)
    candidates = {mode: check(with_one_mode(composed, mode, f"--modes {flags.modes}")) for mode in modes}
    candidates = candidates or {CONFIGURED: spec}
    candidates = {name: replace(one, requests=spec.requests) for name, one in candidates.items()}
    folder = _prepare(spec, flags)
    reference = replace(check(with_one_mode(composed, RESIDENT, "verify")), requests=spec.requests)
    if record is not None:
        source = Path(flags.from_folder or "")
        source = source if source.is_dir() else source.parent
        frames = recorded_frames(record)
        verdicts = judge_record(candidates, reference, record, frames, source, folder, _say(flags))
    else:
        verdicts = judge(candidates, reference, folder, _say(flags))
    if flags.json:
        print(json.dumps([describe_json(verdict) for verdict in verdicts], indent=2))
    else:
        for line in describe(verdicts, folder):
            print(line)
    return exit_code(verdicts)


def modes_of(said: str | None) -> tuple[str, ...]:
    """Return the modes that `--modes` names; `all` is every registered one but `resident`. Raises `ConfigError`."""
    if said is None:
        return ()
    known = {fold_name(name): name for name in STRATEGIES.names()}
    chosen = [fold_name(word) for word in said.split(",") if word.strip()]
    if chosen == [ALL]:
        return tuple(name for name in known.values() if name != RESIDENT)
    for word in chosen:
        if word not in known:
            hint = did_you_mean(word, (*known.values(), ALL))
            raise ConfigError.of("--modes", f"there is no mode '{word}'", hint=hint)
    if not chosen:
        raise ConfigError.of("--modes", "names no mode", hint="write all, or modes with commas between")
    return tuple(dict.fromkeys(known[word] for word in chosen))


def exit_code(verdicts: Sequence[Verdict]) -> int:
    """A difference counts most, then what failed, then what did not fit."""
    if any(verdict.differs for verdict in verdicts):
        return DIFFERENT
    codes = [verdict.error.exit_code for verdict in verdicts if verdict.error is not None]
    if any(verdict.unproved for verdict in verdicts):
        codes.append(StageError.exit_code)
    return max(codes, default=0)


def _with_seeds(spec: RunSpec, record: Mapping[str, Any] | None) -> RunSpec:
    """All runs draw the same noise: the record's seeds, or ones drawn now."""
    requests = spec.requests if record is None else with_recorded_seeds(spec.requests, record)
    drawn = ([secrets.randbits(63) for _ in range(one.num_outputs)] for one in requests)
    seeded = (replace(one, seeds=one.seeds or tuple(seeds)) for one, seeds in zip(requests, drawn, strict=True))
    return replace(spec, requests=tuple(seeded))


def _refuse_what_proves_nothing(spec: RunSpec, modes: Sequence[str], record: Mapping[str, Any] | None) -> None:
    """A run that is compared with itself is always equal."""
    from framework.platforms import kind_of

    if kind_of(spec.device) == "cpu" and (record is None or modes):
        reason = "on the CPU every component is resident, so that a run would be compared with itself"
        raise ConfigError.of("device", reason, hint="add device=sim, a simulated card")
    used = build_graph(spec.pipeline).used_components()
    placed = {one.component for one in spec.placements.values() if one.mode != RESIDENT}
    if record is None and (set(modes) == {RESIDENT} or not (modes or placed & used)):
        reason = "every component is resident, so that a run would be compared with itself"
        key, hint = ("--modes", "write --modes all") if modes else ("residency", "choose a preset, or add --modes all")
        raise ConfigError.of(key, reason, hint=hint)


def _prepare(spec: RunSpec, flags: Flags) -> Path:
    """Check what can be checked before torch is there, fetch what is missing and claim the folder of all runs."""
    from framework.commands.fetching import fetch_missing
    from framework.loading.source import locate_model
    from framework.runtime.determinism import prepare_environment

    used = build_graph(spec.pipeline).used_components()
    fetch_missing(spec.pipeline, used, spec.loras, _say(flags), progress=not flags.quiet, bound=spec.budget.disk)
    locate_model(spec.pipeline.model, spec.pipeline.hints)
    prepare_environment(spec.numerics.deterministic)
    _say(flags)("importing torch and diffusers, some seconds ...")
    from framework.outputs.writer import check_writers
    from framework.runtime.run import check_requests

    check_requests(spec.pipeline, spec.requests, spec.provenance, spec.config.get("requests") or ())
    check_writers(spec.output, spec.requests)
    return claim_folder(spec.output)


def _say(flags: Flags) -> Callable[[str], None]:
    return (lambda line: None) if flags.quiet else lambda line: print(line, file=sys.stderr, flush=True)
