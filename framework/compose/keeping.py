"""What is kept to continue from, and what running out of memory may change. No torch."""

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from framework.errors import Problem, did_you_mean
from framework.graph import Graph
from framework.spec import CheckpointSpec, RecoverSpec

KEY = "checkpoint.stages"
CHOICES = ("auto", "all", "off")
Locate = Callable[[str], str]


def build_checkpoint(data: Mapping[str, Any]) -> CheckpointSpec:
    """Build from the composed data that `checkpoint_problems` has found right."""
    said = data.get("checkpoint") or {}
    stages = said.get("stages")
    if isinstance(stages, list):
        return CheckpointSpec(stages=tuple(stages), every_steps=said.get("every_steps"))
    return CheckpointSpec(stages=stages or "auto", every_steps=said.get("every_steps"))


def build_recover(data: Mapping[str, Any]) -> RecoverSpec | None:
    """Build what may be changed when memory runs out, None where that is off; unsaid values have their defaults."""
    said = data.get("recover")
    if said == "off":
        return None
    return RecoverSpec(**{name: value for name, value in (said or {}).items() if value is not None})


def checkpoint_problems(data: Mapping[str, Any], graph: Graph | None, locate: Locate) -> Iterator[Problem]:
    """Yield stages that do not exist or write nothing, and loops whose state cannot be kept."""
    said = data.get("checkpoint") or {}
    stages = said.get("stages")
    writers = {node.spec.name: bool(node.writes) for node in graph.nodes} if graph else {}
    if isinstance(stages, str) and stages not in CHOICES:
        hint = did_you_mean(stages, CHOICES)
        if stages in writers:
            hint = f"a stage's name goes in a list: checkpoint.stages=[{stages}]"
        yield Problem(KEY, f"unknown choice '{stages}'", locate(KEY), hint)
    for name in stages if isinstance(stages, list) and writers else ():
        if name not in writers:
            yield Problem(KEY, f"there is no stage '{name}'", locate(KEY), did_you_mean(name, writers))
        elif not writers[name]:
            yield Problem(KEY, f"stage '{name}' writes nothing that could be kept", locate(KEY), "remove it")
    cache = (data.get("numerics") or {}).get("step_cache")
    if said.get("every_steps") is not None and cache not in (None, "off", {}):
        key = "checkpoint.every_steps"
        reason = "numerics.step_cache keeps results between steps, which a checkpoint of a step does not hold"
        yield Problem(key, reason, locate(key), "choose one of the two")
