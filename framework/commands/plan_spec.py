"""What the commands that plan share: a spec for planning, its plan, and where charts are written. No torch."""

from pathlib import Path
from typing import Any

from framework.compose.composer import Composed, check
from framework.errors import ConfigError
from framework.graph import Graph
from framework.outputs.atomic import atomic_path
from framework.planning.machine import resolve_hardware
from framework.planning.plan import Plan, Planner
from framework.runtime.own_devices import refuse_several
from framework.spec import RunSpec

ANY_PROMPT = "any"


def finished(composed: Composed) -> RunSpec:
    """Check what was composed; where no prompt is said, any will do: its text does not count."""
    data = composed.data
    if data.get("prompt") is None and not data.get("requests") and not _has_own_prompt(data):
        data["prompt"] = ANY_PROMPT
    return check(composed)


def make_plan(planner: Planner, spec: RunSpec, graph: Graph) -> Plan:
    """Plan for the machine that the spec names, or for the one at hand."""
    refuse_several(spec, graph)
    return planner.plan(spec, graph, resolve_hardware(spec.config.get("hardware"), spec.device))


def write(path: Path, text: str) -> None:
    """Write a chart or a table, whole or not at all. Raises `ConfigError`."""
    try:
        with atomic_path(path) as partial:
            partial.write_text(text, encoding="utf-8", newline="\n")
    except OSError as error:
        raise ConfigError.of("--chart", f"cannot write '{path}': {error.strerror or error}") from None


def _has_own_prompt(data: dict[str, Any]) -> bool:
    request = ((data.get("pipeline") or {}).get("defaults") or {}).get("request") or {}
    return request.get("prompt") is not None
