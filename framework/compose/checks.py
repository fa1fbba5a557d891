"""Checks that a schema cannot say: what is required, and what must agree. No torch."""

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from framework.compose.hardware import hardware_problems
from framework.compose.legacy import refusal
from framework.errors import ConfigError, Problem, did_you_mean
from framework.registry import FAMILIES, STAGES
from framework.spec import MAX_SIM_DEVICES

Locate = Callable[[str], str]

WHOLE = "diffusers_pipeline"  # the backend that reads its components from the checkpoint's own index


def check_required(data: Mapping[str, Any], locate: Locate) -> None:
    """A pipeline needs a name, weights, components and stages; raises `ConfigError` with all that is missing."""
    pipeline = data.get("pipeline") or {}
    model = pipeline.get("model") or {}
    wanted = {
        "pipeline.name": pipeline.get("name"),
        "pipeline.model.source": model.get("source"),
        "pipeline.components": pipeline.get("components") or pipeline.get("backend") == WHOLE,
        "pipeline.stages": pipeline.get("stages"),
    }
    problems = [
        Problem(key, "a value is required", locate(key), f"set {key}") for key, value in wanted.items() if not value
    ]
    for name, stage in (pipeline.get("stages") or {}).items():
        if not (stage or {}).get("kind"):
            key = f"pipeline.stages.{name}"
            problems.append(Problem(key, "the key 'kind' is required", locate(key)))
    if problems:
        raise ConfigError(problems)


def cross_problems(data: Mapping[str, Any], locate: Locate) -> Iterator[Problem]:
    """Yield what does not fit together, and what is refused by name because nothing here could honour it."""
    pipeline = data["pipeline"]
    yield from _backend(pipeline, locate)
    yield from _components(pipeline, str(data.get("device") or "auto").partition(":")[0], locate)
    yield from _machine(data, locate)
    yield from _sweeping(data, locate)
    yield from _without_counterpart(data, locate)


def _backend(pipeline: Mapping[str, Any], locate: Locate) -> Iterator[Problem]:
    backend, family = pipeline.get("backend") or "standard", pipeline.get("family")
    if backend == "modular":
        key = "pipeline.backend"
        yield Problem(key, "'modular' is not part of this version", locate(key), "use standard")
    if backend == WHOLE and backend not in STAGES:
        key = "pipeline.backend"
        yield Problem(key, f"'{backend}' is not part of this version", locate(key), "use standard")
    if backend == "standard" and family is None:
        key = "pipeline.family"
        yield Problem(key, "the standard backend needs a family", locate(key), did_you_mean("", FAMILIES.names()))
    if family is not None and family not in FAMILIES:
        key = "pipeline.family"
        yield Problem(key, f"unknown family '{family}'", locate(key), did_you_mean(family, FAMILIES.names()))
    if backend != WHOLE:
        yield from _arguments(pipeline.get("args") or {}, family, locate)


def _arguments(args: Mapping[str, Any], family: str | None, locate: Locate) -> Iterator[Problem]:
    """A family says which arguments of the call it takes; everything else in it is decided by stages and requests."""
    known = getattr(FAMILIES.get(family), "call_arguments", ()) if family and family in FAMILIES else ()
    for name in args:
        if name not in known:
            key = f"pipeline.args.{name}"
            takes = f"takes {', '.join(known)}" if known else "takes no arguments of the call"
            yield Problem(key, f"family {family} {takes}", locate(key), did_you_mean(name, known))


def _components(pipeline: Mapping[str, Any], run_kind: str, locate: Locate) -> Iterator[Problem]:
    for name, component in pipeline["components"].items():
        layers, lengths = (component or {}).get("layers"), (component or {}).get("num_layers")
        if lengths is not None and len(lengths) != len(layers or []):
            key = f"pipeline.components.{name}.num_layers"
            reason = f"{len(lengths)} lengths for {len(layers or [])} entries of `layers`"
            yield Problem(key, reason, locate(key), "give one for each entry")
        device = (component or {}).get("device")
        if device is not None and run_kind not in ("auto", device.partition(":")[0]):
            key = f"pipeline.components.{name}.device"
            reason = f"'{device}' is another kind of device than that of the run, '{run_kind}'"
            yield Problem(key, reason, locate(key), f"write {run_kind}:1")


def _machine(data: Mapping[str, Any], locate: Locate) -> Iterator[Problem]:
    """A simulated device beyond the last one, and figures of a machine that is looked at instead."""
    kind, _, number = str(data.get("device") or "auto").partition(":")
    if kind == "sim" and int(number or 0) >= MAX_SIM_DEVICES:
        reason = f"there is no device {int(number)}: {MAX_SIM_DEVICES} can be simulated"
        yield Problem("device", reason, locate("device"), f"write sim:0 to sim:{MAX_SIM_DEVICES - 1}")
    hardware = data.get("hardware")
    if hardware is None:
        return
    if hardware.get("name") != "auto":
        yield from hardware_problems(hardware, locate)
        return
    for name, value in hardware.items():
        if name != "name" and value is not None:
            key = f"hardware.{name}"
            hint = f"name the profile to change, as in hardware=rtx_4090 {key}=VALUE"
            yield Problem(key, "no effect beside hardware=auto, which takes its own figures", locate(key), hint)


def _sweeping(data: Mapping[str, Any], locate: Locate) -> Iterator[Problem]:
    """What makes many runs of one, in a command that makes one."""
    for name in ("axes", "points", "prompts"):
        if (data.get("sweep") or {}).get(name):
            key = f"sweep.{name}"
            yield Problem(key, "these are many runs", locate(key), "start them with `framework sweep`")


def _without_counterpart(data: Mapping[str, Any], locate: Locate) -> Iterator[Problem]:
    for key, value in data.items():
        advice = refusal(key) if value is not None else None
        if advice is not None:
            yield Problem(key, f"'{key}' has no counterpart here", locate(key), advice)


def hint_for_unknown(problem: Problem) -> Problem:
    """Put the key to use in place of an option of the older system whose name somebody wrote."""
    advice = refusal(problem.key) if problem.reason.startswith("unknown key") else None
    if advice is None or "." in problem.key:
        return problem
    return Problem(problem.key, f"'{problem.key}' has no counterpart here", problem.where, advice)
