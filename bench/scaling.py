"""How the engine's own cost grows: layers, components, planned jobs, frames and resolution.

    python -m bench.scaling [--quick] [--json]

Each series takes the processor time of one thread, the least of some rounds, at growing sizes. Its exponent is that of
the last doubling or tenfold step: 1 is linear. Nothing may grow faster than linear, where 1.15 is still noise, unless
it costs less than 20 ms in all. What is measured is the engine's own: planning, building, scheduling, hooks, checks and
hashes, with next to nothing computed.
"""

import argparse
import contextlib
import gc
import importlib
import io
import json
import math
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import torch

from bench import tables
from framework.graph import build_graph
from framework.memory.host_budget import HostMemory
from framework.paths import ROOT
from framework.spec import ComponentSpec, ComponentUse, ModelSpec, PipelineSpec, StageSpec
from framework.values import Frames

LIMIT = 1.15
NOISE_S = 0.02
LAYERS = (8, 32, 128, 512, 2048)
COMPONENTS = (1, 10, 100, 1000)
CHOSEN = (1, 10, 100)  # the choice is exact, and 1,000 components take it minutes
JOBS = (10, 100, 1000)
FRAMES = (9, 33, 129, 513)
PIXELS = (128, 256, 512, 1024)
SHORT, SMALL = (9, 17, 33, 61), (32, 64, 128, 256)  # as far as the embedded model's positions go
QUICK = {
    SHORT: (9, 17),
    SMALL: (32, 64),
    LAYERS: (8, 64),
    COMPONENTS: (1, 20),
    CHOSEN: (1, 20),
    JOBS: (5, 20),
    FRAMES: (9, 33),
    PIXELS: (64, 128),
}
PLANNED = ("device=sim", "residency=auto", "--dry-run")
STEPS = 4
LONG_S = 5.0  # beyond it one round is enough

Action = Callable[[], object]


def rig() -> Any:
    """Return the planner's and engine's small components of the tests."""
    for folder in ("tests", "tests/planning"):
        if str(ROOT / folder) not in sys.path:
            sys.path.insert(0, str(ROOT / folder))
    return importlib.import_module("sim_rig")


def script(stacks: Sequence[int]) -> Any:
    """Return one component for each entry, with so many layers, called one after the other."""
    sim_rig = rig()
    parts = {f"part{n}": sim_rig.Part(stacks=(((16, 2),) * layers,)) for n, layers in enumerate(stacks)}
    uses = tuple(ComponentUse(component=name, start_at_stage_entry=False) for name in parts)
    calls = tuple((name, STEPS if len(parts) == 1 else 1) for name in parts)
    return sim_rig.Script(parts=parts, uses={"denoise": uses}, calls={"denoise": calls})


def choices(problem: Any, mode: str) -> dict[str, Any]:
    from framework.planning.plan import uniform_presets

    return uniform_presets(problem)[f"all {mode}"]


def forecasting(stacks: Sequence[int], mode: str) -> Action:
    from framework.planning.forecast import forecast

    problem = rig().problem_of(script(stacks))
    chosen = choices(problem, mode)
    return lambda: forecast(problem, chosen)


def choosing(stacks: Sequence[int]) -> Action:
    """Plan with memory for nine tenths of everything."""
    from framework.planning.choose import select

    problem = rig().problem_of(script(stacks))
    total = sum(one.size_bytes or 0 for one in problem.components.values())
    most = total * 9 // 10 + 2**20
    problem = replace(problem, budgets=replace(problem.budgets, device=most), host=HostMemory(2**40, 2**40))
    return lambda: select(problem)


def running(stacks: Sequence[int], mode: str) -> Action:
    """Build the strategies and run a request on the simulated device."""
    sim_rig, asked = rig(), script(stacks)
    chosen = choices(sim_rig.problem_of(asked), mode)
    return lambda: sim_rig.run(asked, chosen)


def graphing(count: int) -> Action:
    """Order `count` stages, each with a component of its own."""
    components = {f"part{n}": ComponentSpec(name=f"part{n}", group="text_encoder") for n in range(count)}
    stages = {
        "encode": StageSpec(name="encode", kind="diffusers_pipeline"),
        "export": StageSpec(name="export", kind="export"),
    }
    pipeline = PipelineSpec(
        name="many",
        family=None,
        backend="diffusers_pipeline",
        model=ModelSpec(source="nowhere"),
        components=components,
        stages=stages,
    )
    return lambda: build_graph(pipeline)


def sweeping(count: int) -> Action:
    """Check a sweep of `count` jobs with all that is planned before the first starts."""
    from framework.cli import main

    def check() -> None:
        with tempfile.TemporaryDirectory() as folder, contextlib.redirect_stdout(io.StringIO()):
            words = [f"seed=range(0,{count})", *PLANNED, "--dir", str(Path(folder) / "sweep")]
            if main(["sweep", *words]) != 0:
                raise RuntimeError("the sweep was refused")

    return check


def finishing(frames: int, pixels: int) -> Action:
    """Check, hash and write what a request has made."""
    from framework.outputs.hashing import frames_sha256
    from framework.runtime.finite import all_finite

    made = Frames(torch.rand(1, frames, pixels, pixels, 3))
    return lambda: (all_finite(made.data), frames_sha256(made))


def profiling(frames: int, pixels: int) -> Action:
    """Pass shapes alone through the embedded pipeline, as a plan does that nobody has made before."""
    from framework.compose import compose
    from framework.planning.profile_run import profile_request
    from framework.planning.profile_source import describe

    spec = compose([f"request.num_frames={frames}", f"request.height={pixels}", f"request.width={pixels}"])
    return partial(profile_request, spec, build_graph(spec.pipeline), spec.requests[0], describe(spec.pipeline), "sim")


SERIES: dict[str, tuple[tuple[int, ...], Callable[[int], Action]]] = {
    "layers: forecast of a streamed component": (LAYERS, lambda n: forecasting([n], "layerwise-offload")),
    "layers: choice of placements": (LAYERS, lambda n: choosing([n])),
    "layers: build and stream a request": (LAYERS, lambda n: running([n], "layerwise-offload")),
    "components: order of stages and uses": (COMPONENTS, graphing),
    "components: forecast": (COMPONENTS, lambda n: forecasting([2] * n, "component-offload")),
    "components: choice of placements": (CHOSEN, lambda n: choosing([2] * n)),
    "components: build and run a request, moved whole": (COMPONENTS, lambda n: running([2] * n, "component-offload")),
    "components: build and run a request, streamed": (COMPONENTS, lambda n: running([2] * n, "layerwise-offload")),
    "jobs: check and plan a sweep": (JOBS, sweeping),
    "frames: shapes of a plan": (SHORT, lambda n: profiling(n, 32)),
    "resolution: shapes of a plan, by pixels of a side": (SMALL, lambda n: profiling(9, n)),
    "frames: check and hash": (FRAMES, lambda n: finishing(n, 128)),
    "resolution: check and hash, by pixels of a side": (PIXELS, lambda n: finishing(9, n)),
}


def cost(make: Callable[[int], Action], size: int, rounds: int) -> float:
    """Return the least processor time of `rounds`, more where one is short; building the case is not counted."""
    action, times = make(size), list[float]()
    gc.collect()
    while (len(times) < rounds and sum(times) < LONG_S) or (sum(times) < 0.2 and len(times) < 20 * rounds):
        began = time.thread_time()
        action()
        times.append(time.thread_time() - began)
    return min(times)


def exponent(sizes: Sequence[int], costs: Sequence[float], squared: bool) -> float:
    """Return the power of growth over the last two steps; a side of a picture counts with its square."""
    first = max(0, len(sizes) - 3)
    growth = math.log(sizes[-1] / sizes[first]) * (2 if squared else 1)
    return math.log(costs[-1] / costs[first]) / growth


def main(argv: Sequence[str] | None = None) -> None:
    """Print the series."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="two small sizes of each")
    parser.add_argument("--only", help="series whose name begins so")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args(argv)
    torch.set_num_threads(1)
    rows = []
    for name, (sizes, make) in SERIES.items():
        if options.only and not name.startswith(options.only):
            continue
        chosen = QUICK[sizes] if options.quick else sizes
        costs = [cost(make, size, 1 if options.quick else 2) for size in chosen]
        power = exponent(chosen, costs, name.startswith("resolution"))
        holds = power <= LIMIT or costs[-1] < NOISE_S
        rows.append({"series": name, "sizes": chosen, "seconds": costs, "exponent": power, "holds": holds})
        print(f"{name}: {power:.2f}", file=sys.stderr, flush=True)
    found = {"limit": LIMIT, "noise_s": NOISE_S, "series": rows}
    print(json.dumps(found) if options.json else "\n".join(tables.scaling(found)))


if __name__ == "__main__":
    main()
