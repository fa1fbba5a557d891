"""Request keys that nothing in a pipeline reads: refused by name, with what the pipeline does read. No torch.

A family and a stage class state what they read as `request_keys`; the whole-pipeline backend is checked against the
signature of the call instead, before loading.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import fields
from typing import Any

from framework.errors import ConfigError, Problem
from framework.graph import Graph
from framework.registry import FAMILIES
from framework.spec import PipelineSpec, RequestSpec

EVERY_RUN = frozenset({"prompt", "negative_prompt", "seed", "num_outputs", "generator_device", "loras_scale"})
"""Read by the engine, whatever the pipeline."""
_KEYS = frozenset(spec.name for spec in fields(RequestSpec))
_PLACES = ("pipeline.defaults.request", "request")

Reads = Mapping[str, str | None]  # request key -> the component it is for, None for no special one


def check_request_keys(
    data: Mapping[str, Any], pipeline: PipelineSpec, graph: Graph, locate: Callable[[str], str]
) -> tuple[Problem, ...]:
    """Raise `ConfigError` for every request key with a value that nothing reads; return those without effect.

    A pipeline whose family does not say what it reads is not checked.
    """
    reads = read_keys(pipeline, graph)
    if reads is None:
        return ()
    said = list(_said(data))
    problems = [
        _problem(key, name, pipeline, reads, locate) for key, name in said if not _is_read(name, pipeline, reads)
    ]
    if problems:
        raise ConfigError(problems)
    return (*_still_pictures(data, locate), *_unheard(data, FAMILIES.get(pipeline.family or ""), locate))


def read_keys(pipeline: PipelineSpec, graph: Graph) -> Reads | None:
    """What the family and the stages read; None where the family does not say."""
    if pipeline.family is None or pipeline.family not in FAMILIES:
        return None
    own = getattr(FAMILIES.get(pipeline.family), "request_keys", None)
    if own is None:
        return None
    return {**own, **{key: None for node in graph.nodes for key in getattr(node.stage_class, "request_keys", ())}}


def _said(data: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield (dotted key, name) of every request value that is set: defaults, the run's own, then each request's."""
    defaults = ((data.get("pipeline") or {}).get("defaults") or {}).get("request")
    for place, values in zip(_PLACES, (defaults, data.get("request")), strict=True):
        yield from ((f"{place}.{name}", name) for name, value in (values or {}).items() if value is not None)
    for index, line in enumerate(data.get("requests") or ()):
        yield from ((f"requests[{index}].{name}", name) for name, value in line.items() if value is not None)


def _is_read(name: str, pipeline: PipelineSpec, reads: Reads) -> bool:
    return name in EVERY_RUN or (name in reads and reads[name] in (None, *pipeline.components))


def _problem(key: str, name: str, pipeline: PipelineSpec, reads: Reads, locate: Callable[[str], str]) -> Problem:
    if name in reads:
        reason = f"it is for '{reads[name]}', which this pipeline does not have"
        return Problem(key, reason, locate(key), "remove it")
    known = ", ".join(sorted(each for each in _KEYS if each in reads and _is_read(each, pipeline, reads)))
    reason = f"nothing in this pipeline reads it; family {pipeline.family} reads {known}"
    return Problem(key, reason, locate(key), "remove it")


def _base(data: Mapping[str, Any]) -> dict[str, Any]:
    """What the lines of a file of requests stand on."""
    defaults = ((data.get("pipeline") or {}).get("defaults") or {}).get("request") or {}
    return {**defaults, **{name: value for name, value in (data.get("request") or {}).items() if value is not None}}


def _still_pictures(data: Mapping[str, Any], locate: Callable[[str], str]) -> Iterator[Problem]:
    """One line for each frame rate that the user gives to a request of one frame."""
    base = _base(data)
    own = (data.get("request") or {}).get("fps") is not None
    for index, line in enumerate(data.get("requests") or ({},)):
        key = f"requests[{index}].fps" if line.get("fps") is not None else "request.fps"
        frames = line.get("num_frames") or base.get("num_frames")
        if frames == 1 and (own or line.get("fps") is not None):
            yield Problem(key, "no effect: one frame is a picture", locate(key))


def _unheard(data: Mapping[str, Any], family: Any, locate: Callable[[str], str]) -> Iterator[Problem]:
    """One line for each negative prompt of the user's that the guidance scale leaves without effect."""
    above = getattr(family, "negative_prompt_above", None)
    if above is None:
        return
    name, by_default = family.negative_prompt_scale, family.negative_prompt_by_default
    base = _base(data)
    for index, line in enumerate(data.get("requests") or ({},)):
        own = line.get("negative_prompt")
        key = "negative_prompt" if own is None else f"requests[{index}].negative_prompt"
        scale = base.get(name) if line.get(name) is None else line[name]
        unheard = not by_default if scale is None else scale <= above
        if unheard and (data.get("negative_prompt") if own is None else own):
            said = "not set" if scale is None else f"{scale:g}"
            reason = f"no effect: {name} is {said}, and a negative prompt is read above {above:g} only"
            yield Problem(key, reason, locate(key))
