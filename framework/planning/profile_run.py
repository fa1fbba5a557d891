"""One request run on shapes: the pipeline's own stages, scheduler and texts, components without weights. Torch."""

from dataclasses import replace

import torch

from framework.errors import FrameworkError, PlanError
from framework.graph import Graph
from framework.planning.facts import RunWork
from framework.planning.profile_dispatch import FromNumbers, ShapePass
from framework.planning.profile_log import StageLog
from framework.planning.profile_platform import ShapePlatform
from framework.planning.profile_source import Described
from framework.planning.profile_store import shape_store
from framework.platforms.sim.backend import install
from framework.runtime.events import Event, EventBus, StepDone
from framework.runtime.numerics import applied_numerics
from framework.runtime.placing import make_placed
from framework.runtime.prompt_cache import PromptCache
from framework.runtime.scheduler import run_requests
from framework.spec import RequestSpec, RunSpec

SIM = "sim"


def profile_request(spec: RunSpec, graph: Graph, request: RequestSpec, described: Described, target: str) -> RunWork:
    """Run `request` alone, as the first of a run whose components are all resident.

    Raises `PlanError` where the pipeline cannot be passed through on shapes, naming what stopped it.
    """
    install()
    pass_ = ShapePass(SIM if target in (SIM, "cpu") else target)
    log = StageLog(pass_.tape, pass_.memory)
    chosen = replace(request, seeds=request.seeds or tuple(range(request.num_outputs)), generator_device="cpu")
    alone = replace(spec, requests=(chosen,), placements={}, loras=(), prompt_cache_disk=False)

    def hear(event: Event) -> None:
        if isinstance(event, StepDone):
            log.step_done(event.num_steps)

    try:
        with torch.random.fork_rng(devices=[]), torch.no_grad(), FromNumbers(), pass_:
            store = shape_store(spec.pipeline, graph, described, pass_, log)
            platform = ShapePlatform(pass_.memory, log.mark)
            placed = make_placed(spec.pipeline, graph, {}, platform)
            cache = PromptCache() if spec.prompt_cache_memory else None
            with applied_numerics(spec.numerics, store):
                run_requests(alone, graph, store, EventBus(hear), placed=placed, prompt_cache=cache)
    except FrameworkError as error:
        raise PlanError(f"its work cannot be foreseen: {error}") from error
    groups = {name: component.group for name, component in spec.pipeline.components.items()}
    stages = log.stages(lambda component: groups.get(component) == "dit")
    return RunWork(stages=stages, exact=not pass_.tape.guessed and described.has_files, notes=_notes(pass_, described))


def _notes(pass_: ShapePass, described: Described) -> tuple[str, ...]:
    notes = []
    if not described.has_files:
        notes.append("made from the checkpoint's sheet: texts are taken to be as long as they may be")
    if pass_.tape.guessed:
        notes.append(f"code asked for numbers that nobody knows before a run: {', '.join(sorted(pass_.tape.guessed))}")
    return tuple(notes)
