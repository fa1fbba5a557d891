"""One request run on shapes: the pipeline's own stages, scheduler and texts, components without weights. Torch."""

from collections import Counter
from collections.abc import Callable
from dataclasses import replace

import torch

from framework.errors import FrameworkError, PlanError
from framework.graph import Graph
from framework.planning.facts import RunWork, StageWork
from framework.planning.profile_dispatch import FromNumbers, ShapePass
from framework.planning.profile_log import StageLog
from framework.planning.profile_pictures import pictured
from framework.planning.profile_platform import ShapePlatform
from framework.planning.profile_shortcuts import shortcuts
from framework.planning.profile_source import Described
from framework.planning.profile_store import shape_store
from framework.platforms.sim.backend import install
from framework.runtime.events import Event, EventBus, StepDone, UseFinished
from framework.runtime.numerics import applied_numerics
from framework.runtime.placed import _clear_caches
from framework.runtime.placing import make_placed
from framework.runtime.prompt_cache import PromptCache
from framework.runtime.scheduler import run_requests
from framework.spec import RequestSpec, RunSpec

SIM = "sim"
SHORT_TEXT = "a"
LONG_TEXT = "four words, no more"  # shorter than any limit: a text that fills it needs no mask


def profile_request(
    spec: RunSpec, graph: Graph, request: RequestSpec, described: Described, target: str
) -> tuple[RunWork, bool]:
    """Run `request` alone, as the first of a run whose components are all resident.

    Returns its work, and whether other texts would change what the components compute. Raises `PlanError` where the
    pipeline cannot be passed through on shapes, naming what stopped it.
    """
    install()
    pass_ = ShapePass(SIM if target in (SIM, "cpu") else target)
    log = StageLog(pass_.tape, pass_.memory)

    def hear(event: Event) -> None:
        if isinstance(event, StepDone):
            log.step_done(event.num_steps)
        elif isinstance(event, UseFinished):
            log.use_done()

    with torch.random.fork_rng(devices=[]), torch.no_grad(), FromNumbers(), pass_:
        store = shape_store(spec.pipeline, graph, described, pass_, log)
        platform = ShapePlatform(pass_.memory, log.mark)
        placed = make_placed(spec.pipeline, graph, {}, platform)
        cache = PromptCache() if spec.prompt_cache_memory else None

        def run(one: RequestSpec) -> tuple[StageWork, ...]:
            alone = replace(spec, requests=(_plain(one),), placements={}, loras=(), prompt_cache_disk=False)
            run_requests(alone, graph, store, EventBus(hear), placed=placed, prompt_cache=cache)
            return log.take(lambda component: _group(spec, component) == "dit")

        try:
            with (
                applied_numerics(spec.numerics, store),
                shortcuts(pass_.tape),
                pictured(spec, graph, request, described, store.pipeline_class) as whole,
            ):
                stages = run(whole)
                texts_matter = described.has_files and _differs(stages, lambda: run(_other_texts(whole)))
        except FrameworkError as error:
            raise PlanError(f"the work of this request cannot be foreseen: {error}") from error
        finally:
            for module in store.modules().values():
                _clear_caches(module)
    exact = not pass_.tape.guessed and described.has_files
    return RunWork(stages=stages, exact=exact, notes=_notes(pass_, described)), texts_matter


def _plain(request: RequestSpec) -> RequestSpec:
    """Its numbers do not matter, but it needs a seed for each output."""
    return replace(request, seeds=request.seeds or tuple(range(request.num_outputs)), generator_device="cpu")


def _other_texts(request: RequestSpec) -> RequestSpec:
    """The same request with a text of another length."""
    other = SHORT_TEXT if len(request.prompt) > len(LONG_TEXT) // 2 else LONG_TEXT
    negative = f"{other} no" if request.negative_prompt else request.negative_prompt
    return replace(request, prompt=other, negative_prompt=negative)


def _differs(stages: tuple[StageWork, ...], again: Callable[[], tuple[StageWork, ...]]) -> bool:
    """Whether a second request makes components compute anything that they did not compute in the first."""
    try:
        others = again()
    except FrameworkError:
        return True  # a text that the pipeline refuses tells nothing
    known = {replace(count.call, live_bytes=0) for stage in stages for count in stage.calls}
    told = [_number_of_calls(one) for one in (stages, others)]
    return told[0] != told[1] or any(
        replace(count.call, live_bytes=0) not in known for stage in others for count in stage.calls
    )


def _number_of_calls(stages: tuple[StageWork, ...]) -> Counter[tuple[str, str]]:
    found: Counter[tuple[str, str]] = Counter()
    for stage in stages:
        for count in stage.calls:
            found[stage.stage, count.call.component] += count.count
    return found


def _group(spec: RunSpec, component: str) -> str | None:
    found = spec.pipeline.components.get(component)
    return found.group if found is not None else None


def _notes(pass_: ShapePass, described: Described) -> tuple[str, ...]:
    notes = []
    if not described.has_files:
        notes.append("made from the checkpoint's sheet: texts are taken to be as long as they may be")
    if pass_.tape.guessed:
        notes.append(f"code asked for numbers that nobody knows before a run: {', '.join(sorted(pass_.tape.guessed))}")
    return tuple(notes)
