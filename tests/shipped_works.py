"""The stored work of shipped pipelines, and a planner that goes by it: plans of real models without a pass. No torch.

`tools/make_works.py` writes the files.
"""

import gzip
import json
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

from framework.compose import compose
from framework.errors import PlanError
from framework.graph import Graph, build_graph
from framework.planning.facts import RunWork
from framework.planning.machine import Machine
from framework.planning.plan import Plan, Planner
from framework.planning.profile_cache import from_plain
from framework.platforms.hardware import HardwareProfile, load_hardware
from framework.spec import NumericsSpec, RequestSpec, RunSpec

FOLDER = Path(__file__).parent / "planning" / "works"
PIPELINES = sorted(path.name.partition(".")[0] for path in FOLDER.glob("*.json.gz"))


@cache
def shipped_work(name: str, tiled: bool = False) -> RunWork:
    """Return the work of a pipeline's default request. Raises `PlanError` where its VAE cannot work in tiles."""
    content: dict[str, Any] = json.loads(gzip.decompress((FOLDER / f"{name}.json.gz").read_bytes()))
    found = content.get("tiled" if tiled else "plain")
    if found is None:
        raise PlanError(f"{name}: its VAE has no tiles")
    return from_plain(found)


@dataclass(slots=True)
class ShippedPlanner(Planner):
    """Knows the work of shipped pipelines from their files, whatever the request says otherwise."""

    def work(self, spec: RunSpec, graph: Graph, request: RequestSpec, target: str, numerics: NumericsSpec) -> RunWork:
        return shipped_work(spec.pipeline.name, numerics.vae_tiling is True)


PLANNER = ShippedPlanner(connect=False)


@cache
def shipped(name: str) -> tuple[RunSpec, Graph]:
    """Return a pipeline with everything left to the planner, composed once; its presets are in the spec."""
    spec = compose([f"pipeline={name}", "residency=auto", "device=cuda", "prompt=any"])
    return spec, build_graph(spec.pipeline)


@cache
def card(name: str) -> HardwareProfile:
    return load_hardware(name)


def plan(name: str, hardware: HardwareProfile, preset: str | None = None) -> Plan:
    """Plan a pipeline's default request: as a preset has it, or as the planner does. Raises `CannotFit`."""
    spec, graph = shipped(name)
    if preset is not None:
        spec = replace(spec, placements=spec.presets[preset], planned=False)
    return PLANNER.plan(spec, graph, Machine(hardware))
