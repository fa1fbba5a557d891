"""Which components are stored in fewer bits, from `numerics.quantize` and from GGUF files as sources. No torch."""

from collections.abc import Callable, Mapping
from typing import Any

from framework.compose.selectors import fold_selector, group_of, is_known, targets_of
from framework.compose.sources import ComponentFacts
from framework.errors import ConfigError, Problem, did_you_mean
from framework.quantization import KEY, METHODS, Quantization, capability_problems, describe, read_quantization
from framework.spec import PipelineSpec, Placement

GGUF_SUFFIX = ".gguf"


def build_quantize(
    data: Mapping[str, Any], pipeline: PipelineSpec, used: frozenset[str], locate: Callable[[str], str]
) -> dict[str, Quantization]:
    """Return what is done to which component that the run uses; an exact name beats a group, a group `all`.

    Raises `ConfigError` for names, methods and options that are not there, and for methods that a file contradicts.
    """
    facts = {name: ComponentFacts(group=group_of(name, part.group)) for name, part in pipeline.components.items()}
    problems: list[Problem] = []
    chosen: dict[str, tuple[int, Quantization | None]] = {}
    for selector, value in ((data.get("numerics") or {}).get("quantize") or {}).items():
        key = f"{KEY}.{selector}"
        if not is_known(fold_selector(selector), facts):
            reason = f"the pipeline has no component or group '{selector}'"
            problems.append(Problem(key, reason, locate(key), did_you_mean(selector, facts)))
            continue
        quantization, found = read_quantization(key, value)
        problems += (Problem(p.key, p.reason, locate(p.key) or locate(key), p.hint) for p in found)
        for name, rank in targets_of(fold_selector(selector), facts).items():
            if name not in chosen or rank < chosen[name][0]:
                chosen[name] = rank, quantization
    wanted = {name: quantization for name, (_, quantization) in chosen.items()}
    problems += _with_files(wanted, pipeline, locate)
    if problems:
        raise ConfigError(problems)
    return {name: found for name, found in wanted.items() if found is not None and name in used}


def method_names(quantized: Mapping[str, Quantization]) -> dict[str, str]:
    """What the resolver of placements reads: a method for each component."""
    return {name: quantization.method.name for name, quantization in quantized.items()}


def quantize_problems(
    quantized: Mapping[str, Quantization],
    placements: Mapping[str, Placement],
    device: str,
    locate: Callable[[str], str],
) -> list[Problem]:
    """Return what cannot be had, as far as the config tells: a method with its mode, and on a device that is named."""
    kind = device.partition(":")[0]
    modes = {name: placement.mode for name, placement in placements.items()}
    found = capability_problems(quantized, modes, None if kind == "auto" else kind, packages=False)
    return [Problem(p.key, p.reason, locate(p.key), p.hint) for p in found]


def quantize_notes(quantized: Mapping[str, Quantization]) -> list[str]:
    """One line for each component whose weights are not the checkpoint's own."""
    return [f"{quantization.key}: {describe(name, quantization)}" for name, quantization in quantized.items()]


def _with_files(
    wanted: dict[str, Quantization | None], pipeline: PipelineSpec, locate: Callable[[str], str]
) -> list[Problem]:
    """A GGUF file is a method by itself: it is added where nobody said it, and nothing else goes with it."""
    problems = []
    for name, component in pipeline.components.items():
        is_gguf = bool(component.source and component.source.lower().endswith(GGUF_SUFFIX))
        said = wanted.get(name)
        source = f"pipeline.components.{name}.source"
        if is_gguf and said is None:
            wanted[name] = Quantization(method=METHODS["gguf"], key=source)
        elif said is not None and is_gguf != (said.method.name == "gguf"):
            reason = f"'{name}' comes from a GGUF file, which is a method by itself" if is_gguf else "gguf needs a file"
            hint = "write gguf" if is_gguf else f"set {source} to a .gguf file"
            problems.append(Problem(said.key, reason, locate(said.key), hint))
    return problems
