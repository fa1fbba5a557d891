"""Splits a command line into overrides and flags, wherever the flags stand. No torch, no Hydra."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, fields
from typing import Any

from framework.errors import ConfigError, Problem, did_you_mean


def _flag(*names: str, arity: int = 0, repeat: bool = False, metavar: str = "", text: str = "") -> Any:
    metadata = {"names": names, "arity": arity, "repeat": repeat, "metavar": metavar, "help": text}
    default: Any = () if repeat or arity > 1 else None if arity else False
    return field(default=default, metadata=metadata)


@dataclass(frozen=True, slots=True, kw_only=True)
class Flags:
    """Every flag of the program; which ones a command takes is said by `parse`'s `accepted`."""

    help: bool = _flag("--help", "-h", text="show this help")
    debug: bool = _flag("--debug", text="show the traceback of an error")
    quiet: bool = _flag("--quiet", "-q", text="print results and errors only")
    json: bool = _flag("--json", text="print JSON")
    trace: bool = _flag("--trace", text="write a trace of the run")
    dry_run: bool = _flag("--dry-run", text="check everything, run nothing")
    graph: bool = _flag("--graph", text="print the stage graph as text and as Mermaid")
    families: bool = _flag("--families", text="list the families only")
    markdown: bool = _flag("--markdown", text="print Markdown")
    chart: str | None = _flag("--chart", arity=1, metavar="FILE", text="write a chart")
    why: str | None = _flag("--why", arity=1, metavar="COMPONENT", text="explain one component")
    modes: str | None = _flag("--modes", arity=1, metavar="MODES", text="modes to compare")
    diff: tuple[str, ...] = _flag("--diff", arity=2, metavar="A B", text="compare two configs")
    from_folder: str | None = _flag("--from", arity=1, metavar="FOLDER", text="repeat the run recorded in FOLDER")
    from_runs: tuple[str, ...] = _flag(
        "--from-runs", arity=1, repeat=True, metavar="FOLDER", text="learn from recorded runs"
    )
    resume: str | None = _flag(
        "--resume", arity=1, metavar="FOLDER", text="continue the run in FOLDER from what it kept"
    )
    until: str | None = _flag("--until", arity=1, metavar="STAGE", text="stop after STAGE and keep its result")
    from_stage: str | None = _flag(
        "--from-stage",
        arity=1,
        metavar="STAGE[=FILE]",
        text="start at STAGE, with results kept in --from FOLDER or in FILE",
    )
    multirun: bool = _flag("-m", "--multirun", text="as Hydra means it; with `run` the same as `sweep`")
    cfg: str | None = _flag("--cfg", "-c", arity=1, metavar="job", text="print the composed config")
    info: str | None = _flag("--info", "-i", arity=1, metavar="WHAT", text="print defaults, searchpath or config")
    config_dir: tuple[str, ...] = _flag(
        "--config-dir", "-cd", arity=1, repeat=True, metavar="DIR", text="search DIR for YAML files first"
    )
    config_name: str | None = _flag("--config-name", "-cn", arity=1, metavar="NAME", text="use another root config")
    dir: str | None = _flag("--dir", arity=1, metavar="DIR", text="folder of the sweep")
    status: bool = _flag("--status", text="show the state of a sweep")
    extend: bool = _flag("--extend", text="add jobs to an existing sweep")
    devices: str | None = _flag("--devices", arity=1, metavar="LIST", text="devices to use")
    devices_per_job: str | None = _flag("--devices-per-job", arity=1, metavar="N", text="devices for each job")
    jobs_per_device: str | None = _flag("--jobs-per-device", arity=1, metavar="N", text="jobs on each device at once")
    retries: str | None = _flag("--retries", arity=1, metavar="N", text="try a failed job again N times")
    fail_fast: bool = _flag("--fail-fast", text="stop at the first failure")
    max_failures: str | None = _flag("--max-failures", arity=1, metavar="N", text="stop after N failures")
    engine: str | None = _flag("--engine", arity=1, metavar="NAME", text="where jobs run")
    prompts: str | None = _flag("--prompts", arity=1, metavar="FILE", text="one prompt a line, an axis of the sweep")


COMMON = frozenset({"help", "debug", "quiet"})
COMPOSING = COMMON | {"config_dir", "config_name", "cfg", "info", "multirun"}
_BY_NAME = {name: spec for spec in fields(Flags) for name in spec.metadata["names"]}


def describe_flags(accepted: Iterable[str]) -> list[tuple[str, str]]:
    """Return (`-m, --multirun`, help) of the accepted flags, for help texts."""
    rows = []
    for spec in fields(Flags):
        if spec.name in set(accepted):
            names = ", ".join(spec.metadata["names"])
            rows.append((f"{names} {spec.metadata['metavar']}".rstrip(), spec.metadata["help"]))
    return rows


def parse(arguments: Sequence[str], accepted: Iterable[str], command: str = "") -> tuple[list[str], Flags]:
    """Split `arguments` into overrides (or words) and `Flags`; `--` ends the flags.

    Raises `ConfigError` with every unknown flag, flag of another command, and missing value.
    """
    takes = frozenset(accepted)
    overrides: list[str] = []
    values: dict[str, Any] = {}
    problems: list[Problem] = []
    waiting = list(arguments)
    while waiting:
        word = waiting.pop(0)
        if word == "--":
            overrides += waiting
            break
        if not word.startswith("-") or word == "-":
            overrides.append(word)
            continue
        name, equals, attached = word.partition("=")
        spec = _BY_NAME.get(name)
        if spec is None or spec.name not in takes:
            problems.append(_unknown(name, word, takes, command))
            continue
        arity = spec.metadata["arity"]
        given = [attached] if equals else waiting[:arity]
        if len(given) != arity:
            problems.append(Problem(name, _arity_text(arity), f"from the command line: {word}"))
            continue
        if not equals:
            del waiting[:arity]
        _store(values, spec, given)
    if problems:
        raise ConfigError(problems)
    return overrides, Flags(**values)


def _store(values: dict[str, Any], spec: Any, given: list[str]) -> None:
    if spec.metadata["repeat"]:
        values[spec.name] = (*values.get(spec.name, ()), *given)
    elif not given:
        values[spec.name] = True
    else:
        values[spec.name] = given[0] if len(given) == 1 else tuple(given)


def _arity_text(arity: int) -> str:
    return "takes no value" if arity == 0 else f"needs {'a value' if arity == 1 else f'{arity} values'}"


def _unknown(name: str, word: str, takes: frozenset[str], command: str) -> Problem:
    legal = [flag for flag, spec in _BY_NAME.items() if spec.name in takes and flag.startswith("--")]
    reason = f"'{command}' has no such flag" if command and name in _BY_NAME else "unknown flag"
    return Problem(name, reason, f"from the command line: {word}", did_you_mean(name, legal))
