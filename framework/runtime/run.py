"""One run from a decided spec to its end: checks, loading, requests, and the events around them. Imports torch."""

import gc
import time
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from dataclasses import asdict, replace
from typing import Any

from framework.errors import ConfigError, FrameworkError, Interrupted, Origin, PlanError, Problem
from framework.graph import Graph
from framework.loading.classes import pipeline_class
from framework.loading.index import read_configs, read_index
from framework.loading.load import load_store, view_class_of
from framework.loading.schedulers import check_scheduler
from framework.loading.source import locate_model
from framework.loading.spares import Spares
from framework.planning.facts import Budgets
from framework.platforms import Platform, make_platform
from framework.registry import FAMILIES, STAGES
from framework.runtime.artifacts import Artifacts
from framework.runtime.budget import bounded, refuse_before_loading
from framework.runtime.context import Writer
from framework.runtime.deciding import decide
from framework.runtime.determinism import prepared_environment
from framework.runtime.elsewhere import Bridge, bounded_too, make_elsewhere
from framework.runtime.events import EventBus, Note, PlanMade, RunFinished, RunStarted
from framework.runtime.interrupts import Interrupts, interruptible
from framework.runtime.numerics import denoisers_of, refuse_incapable, run_numerics
from framework.runtime.placing import effective_placements, make_placed, move, note_depths, place_all, reads_of
from framework.runtime.scheduler import RunResult, run_requests
from framework.runtime.step_cache import StepCaches
from framework.runtime.warm import Loaded, Warm
from framework.runtime.watch import Watch
from framework.runtime.weight_edits import WeightEdits
from framework.spec import EMPTY, PipelineSpec, Placement, RequestSpec, RunSpec

REFUSED = (ConfigError.exit_code, PlanError.exit_code)  # nothing was computed


_FAILED: dict[str, bool] = {}
"""Whether the run `before` in this process ended early."""


def execute(
    spec: RunSpec,
    graph: Graph,
    events: EventBus,
    writer: Writer | None = None,
    *,
    interrupts: Interrupts | None = None,
    keep: Sequence[str] = (),
    warm: Warm | None = None,
    tracer: Watch | None = None,
    artifacts: Artifacts | None = None,
    serve: bool = True,
) -> RunResult:
    """Check, load and run `spec`; the last event is always `RunFinished`.

    `warm` keeps the weights for the next run that it is given to; `serve` False: only load them. SIGINT and SIGTERM end
    the run as `Interrupted` within two seconds. `tracer`, already subscribed, sees its platform and components.
    `artifacts` keep what a later process could go on from, and say where each request begins. Raises whatever ended
    the run.
    """
    started = time.perf_counter()
    status, message = "failed", None
    if _FAILED.pop("before", False):
        gc.collect()  # its error held its modules when it ended, and they may fill a card
    frozen = gc.get_freeze_count()
    if not frozen:  # else whoever calls sees to it
        gc.freeze()  # what is here already, all of diffusers, need not be searched at the end
    try:
        with interruptible(interrupts) as chosen:
            result = _execute(spec, graph, events, writer, chosen, keep, warm, tracer, artifacts, serve)
        status = "done"
        return result
    except (Interrupted, KeyboardInterrupt) as error:
        status, message = "interrupted", str(error) or "interrupted"
        if isinstance(error, KeyboardInterrupt):
            raise Interrupted("interrupted") from error
        raise
    except Exception as error:
        status = "refused" if isinstance(error, FrameworkError) and error.exit_code in REFUSED else "failed"
        message = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise
    finally:
        if status != "done":
            _FAILED["before"] = True
            if warm is not None:
                warm.broke_off(status)
        gc.collect()  # hooked modules are cycles, and the next run in this process needs their memory
        if not frozen:
            gc.unfreeze()
        events.emit(RunFinished(status, time.perf_counter() - started, message))


def _execute(
    spec: RunSpec,
    graph: Graph,
    events: EventBus,
    writer: Writer | None,
    interrupts: Interrupts,
    keep: Sequence[str],
    warm: Warm | None,
    tracer: Watch | None,
    artifacts: Artifacts | None,
    serve: bool,
) -> RunResult:
    check_requests(spec.pipeline, spec.requests, spec.provenance)
    if warm is not None and tracer is not None:
        warm.close()  # what is placed already tells its copies to another tracer, or to none
    asked, again = spec, warm.decision(spec) if warm is not None else None
    spec = again or decide(spec, graph, events)
    kept = warm.find(spec) if warm is not None else None
    platform = kept.platform if kept is not None else make_platform(spec.device, spec.config.get("hardware"))
    _check_generators(spec.requests, platform.kind)
    if tracer is not None:
        platform = tracer.watch(platform)
    events.emit(RunStarted(spec.pipeline.name, len(spec.requests), str(platform.device)))
    interrupts.check()
    elsewhere = make_elsewhere(spec, graph, platform)
    for name, other in elsewhere.items():
        events.emit(Note(f"{name} computes on {other.device}"))
    own_budgets = bounded(platform, spec.budget)
    with prepared_environment(spec.numerics.deterministic), own_budgets as budgets, bounded_too(elsewhere, spec.budget):
        placements = effective_placements(spec.placements, graph.used_components(), platform.kind, events)
        refuse_incapable(spec, graph, placements, platform.kind)
        if kept is None:
            spares = warm.take_spares() if warm is not None else None
            loaded = _load(spec, graph, placements, events, interrupts, platform, budgets, elsewhere, spares)
        else:
            loaded = kept
            move(loaded.placed, spec.pipeline, graph, placements)
            events.emit(Note("the weights are those of the run before"))
        if again is not None and spec.plan is not None:
            events.emit(PlanMade(spec.plan, tuple(asdict(placement) for placement in spec.placements.values())))
        if serve:
            result = _run_loaded(spec, graph, events, writer, interrupts, keep, loaded, tracer, artifacts)
        else:
            place_all(loaded.placed, loaded.store, graph)
            result = RunResult(())
    if warm is not None and tracer is None:
        warm.keep(asked, spec, loaded)
    return result


def _load(
    spec: RunSpec,
    graph: Graph,
    placements: Mapping[str, Placement],
    events: EventBus,
    interrupts: Interrupts,
    platform: Platform,
    budgets: Budgets,
    elsewhere: Mapping[str, Platform],
    spares: Spares | None,
) -> Loaded:
    refuse_before_loading(spec.pipeline, graph, placements, platform, budgets, spec.numerics.quantize, elsewhere)
    placed = make_placed(spec.pipeline, graph, placements, platform, budgets, elsewhere)
    store = load_store(
        spec.pipeline,
        graph,
        placements,
        events,
        platform.device,
        interrupts.check,
        place=placed.strategy,
        uses=reads_of(spec.pipeline, spec.requests),
        quantized=spec.numerics.quantize,
        spares=spares,
    )
    note_depths(spec.pipeline, store.modules(), events)
    for name, other in elsewhere.items():
        store.put_elsewhere(name, Bridge(platform.device, other.device))
    return Loaded(platform, store, placed, WeightEdits(store, placed))


def _run_loaded(
    spec: RunSpec,
    graph: Graph,
    events: EventBus,
    writer: Writer | None,
    interrupts: Interrupts,
    keep: Sequence[str],
    loaded: Loaded,
    tracer: Watch | None,
    artifacts: Artifacts | None,
) -> RunResult:
    store = loaded.store
    loaded.edits.apply(spec.loras)
    caches = StepCaches(spec.numerics.step_cache, store, denoisers_of(spec, store))
    layers = {name: part.layers for name, part in spec.pipeline.components.items()}
    compiled = spec.numerics.compile != "off"
    watched = nullcontext() if tracer is None else tracer.layers(store.modules(), layers, compiled)
    with run_numerics(spec, store, events), watched:
        return run_requests(
            spec,
            graph,
            store,
            events,
            writer,
            interrupts=interrupts,
            keep=keep,
            prompt_cache=None if spec.prompt_cache_disk else loaded.prompt_cache,
            placed=loaded.placed,
            edits=loaded.edits,
            caches=caches,
            artifacts=artifacts,
        )


def _check_generators(requests: Sequence[RequestSpec], kind: str) -> None:
    """Refuse a generator that is neither on the host nor where the run computes: its numbers could not be used."""
    for request in requests:
        if request.generator_device.partition(":")[0] not in ("cpu", kind):
            reason = f"this run computes on {kind}, and '{request.generator_device}' is another device"
            raise ConfigError.of("request.generator_device", reason, hint="write cpu, the same on every device")


def check_requests(
    pipeline: PipelineSpec,
    requests: Sequence[RequestSpec],
    provenance: Mapping[str, Origin] = EMPTY,
    lines: Sequence[Mapping[str, Any]] = (),
) -> None:
    """Refuse what the checkpoint or its pipeline cannot honour, before any weight is read.

    The family looks at sizes, a stage with `check_call` at the arguments of the pipeline's call; `provenance` gives
    the place of what they find, `lines` what each request of a file says itself. Raises `ConfigError`, `LoadError`.
    """
    kinds = [STAGES.get(stage.kind) for stage in pipeline.stages.values()]
    checkers = [kind for kind in kinds if hasattr(kind, "check_call")]
    index = read_index(locate_model(pipeline.model, pipeline.hints))
    view_class_of(pipeline, index)  # a folder of another family is refused as that
    check_scheduler(index, pipeline.scheduler)
    problems: list[Problem] = []
    if pipeline.family is not None:
        family, configs = FAMILIES.get(pipeline.family)(), read_configs(index)
        for number, request in enumerate(requests):
            found = family.check_request(request, index.options, configs)
            said = lines[number] if number < len(lines) else EMPTY
            problems += [_in_line(problem, number, said, provenance) for problem in found]
    if checkers:
        called = pipeline_class(index, pipeline.model.trust_remote_code)
        problems += [found for kind in checkers for found in kind.check_call(called, pipeline.args, requests)]
    if problems:
        raise ConfigError(_placed(problem, provenance) for problem in dict.fromkeys(problems))


def _in_line(problem: Problem, number: int, said: Mapping[str, Any], provenance: Mapping[str, Origin]) -> Problem:
    """Name the request whose own line of a file says the value; anything below it is not where it came from."""
    name = problem.key.rpartition(".")[2]
    if problem.where or said.get(name) is None:
        return problem
    origin = provenance.get(f"requests[{number}]") or provenance.get("requests")
    return replace(problem, key=f"requests[{number}].{name}", where=origin.where if origin else "")


def _placed(problem: Problem, provenance: Mapping[str, Origin]) -> Problem:
    """Say where a value stands that came from a file or the command line; a request's may be the pipeline's default."""
    for key in (problem.key, f"pipeline.defaults.{problem.key}", f"pipeline.defaults.request.{problem.key}"):
        origin = provenance.get(key)
        if origin is not None and not problem.where:
            return replace(problem, where=origin.where)
    return problem
