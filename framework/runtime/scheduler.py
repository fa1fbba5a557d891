"""Runs the requests of a spec through its graph, stage by stage. Imports torch; knows no sink and no file."""

import math
import secrets
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch

from framework.errors import FrameworkError, Interrupted, StageError
from framework.graph import Graph, Node
from framework.memory.layerwise import is_sharded
from framework.paths import cache_root
from framework.platforms import make_platform
from framework.registry import FAMILIES
from framework.runtime.artifacts import Artifacts
from framework.runtime.budget import bounded, disk_bytes
from framework.runtime.context import StageContext, Writer
from framework.runtime.events import (
    EventBus,
    Note,
    RequestFinished,
    RequestStarted,
    StageFinished,
    StageStarted,
)
from framework.runtime.failures import failure_line, layer_of, marked_layer
from framework.runtime.family import Family
from framework.runtime.finite import all_finite
from framework.runtime.interrupts import Interrupts
from framework.runtime.kept import Kept
from framework.runtime.notches import planned
from framework.runtime.placed import Placed
from framework.runtime.placing import Meter, effective_placements, make_placed, place_all
from framework.runtime.prompt_cache import PromptCache
from framework.runtime.prompt_files import CAPACITY_BYTES, PromptFiles
from framework.runtime.recovery import Recovery, unrepeatable
from framework.runtime.residency import ResidencyManager
from framework.runtime.step_cache import StepCaches
from framework.runtime.store import ComponentStore
from framework.runtime.weight_edits import WeightEdits
from framework.spec import LoraSpec, RequestSpec, RunSpec
from framework.values import Value

SEED_BITS = 63  # what every generator and every JSON reader of the record can hold


@dataclass(frozen=True, slots=True)
class RequestResult:
    """One finished request: `stage_seconds` by stage in execution order, `values` those that were asked for."""

    index: int
    seeds: tuple[int, ...]
    seconds: float
    stage_seconds: Mapping[str, float]
    values: Mapping[str, Value] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class RunResult:
    requests: tuple[RequestResult, ...]


def run_requests(
    spec: RunSpec,
    graph: Graph,
    store: ComponentStore,
    events: EventBus,
    writer: Writer | None = None,
    *,
    interrupts: Interrupts | None = None,
    prompt_cache: PromptCache | None = None,
    keep: Sequence[str] = (),
    placed: Placed | None = None,
    edits: WeightEdits | None = None,
    caches: StepCaches | None = None,
    artifacts: Artifacts | None = None,
) -> RunResult:
    """Execute every request of `spec` and return what each took.

    `keep` names values to return; all others are dropped after their last reader. `prompt_cache` lets several calls
    share embeddings; without one, the requests of this call share their own unless the spec turns it off. `placed`
    keeps components where they are between several calls; without one they are placed by `spec` for this call, and
    their weights are in the store's modules on the host after it. `edits` gives each request the strengths of adapters
    that it asks for; those of the last one stay. `caches` hold what a denoiser reuses between the steps of a request.
    `artifacts` keep what a later process could go on from, and say where each request begins.

    Raises `PlanError` for what cannot fit, `StageError` naming stage, step and component, or `Interrupted`;
    components are idle again in every case.
    """
    if placed is not None:
        return _run_all(
            spec, graph, store, events, writer, interrupts, prompt_cache, keep, placed, edits, caches, artifacts
        )
    platform = make_platform(str(store.device))
    placements = effective_placements(spec.placements, frozenset(store.managed), platform.kind, events)
    with bounded(platform, spec.budget) as budgets:
        own = make_placed(spec.pipeline, graph, placements, platform, budgets)
        try:
            return _run_all(
                spec, graph, store, events, writer, interrupts, prompt_cache, keep, own, edits, caches, artifacts
            )
        finally:
            own.close()


def _run_all(
    spec: RunSpec,
    graph: Graph,
    store: ComponentStore,
    events: EventBus,
    writer: Writer | None,
    interrupts: Interrupts | None,
    prompt_cache: PromptCache | None,
    keep: Sequence[str],
    placed: Placed,
    edits: WeightEdits | None,
    caches: StepCaches | None,
    artifacts: Artifacts | None,
) -> RunResult:
    place_all(placed, store, graph)
    family: Family | None = FAMILIES.get(spec.pipeline.family)() if spec.pipeline.family else None
    check = (interrupts or Interrupts()).check
    recovery = Recovery(spec.recover, placed, store.modules, events, unrepeatable(spec), planned(spec.next_best))
    run = _Run(
        spec=spec,
        graph=graph,
        store=store,
        events=events,
        writer=writer,
        family=family,
        check=check,
        residency=ResidencyManager(store, placed, events, check, recovery),
        recovery=recovery,
        placed=placed,
        prompt_cache=_cache(spec, prompt_cache, store.device.type),
        keep=frozenset(keep),
        arguments=spec.pipeline.args,
        edits=edits if any(request.lora_scales is not None for request in spec.requests) else None,
        loras=spec.loras,
        caches=caches or StepCaches(None, store, ()),
        artifacts=artifacts,
    )
    requests = [with_seeds(request) for request in spec.requests]
    if spec.warmup:
        run.warm_up(requests[0])
    todo = [index for index in range(len(requests)) if artifacts is None or not artifacts.is_done(index)]
    return RunResult(tuple(run.request(index, requests) for index in todo))


def with_seeds(request: RequestSpec) -> RequestSpec:
    """Return the request with a seed for each output, drawn where none was given."""
    if request.seeds is not None:
        return request
    return replace(request, seeds=tuple(secrets.randbits(SEED_BITS) for _ in range(request.num_outputs)))


def with_fewest_steps(request: RequestSpec) -> RequestSpec:
    """Return the request with one step, or with as many as leave one where `strength` skips some."""
    if request.num_inference_steps is None:
        return request
    fewest = 1 if not request.strength else math.ceil(1 / request.strength)
    return replace(request, num_inference_steps=min(request.num_inference_steps, fewest))


def _cache(spec: RunSpec, given: PromptCache | None, device: str) -> PromptCache | None:
    if given is not None and spec.prompt_cache_memory:
        return given
    files = _prompt_files(spec, device) if spec.prompt_cache_disk else None
    if spec.prompt_cache_memory:
        return PromptCache(files=files)
    return None if files is None else PromptCache(capacity_bytes=0, files=files)


def _prompt_files(spec: RunSpec, device: str) -> PromptFiles:
    folder = cache_root() / "prompts"
    bound = disk_bytes(spec.budget, folder)
    capacity = CAPACITY_BYTES if bound is None else min(CAPACITY_BYTES, bound)
    return PromptFiles((device, repr(spec.numerics)), folder, capacity)


@dataclass(slots=True)
class _Run:
    spec: RunSpec
    graph: Graph
    store: ComponentStore
    events: EventBus
    writer: Writer | None
    family: Family | None
    check: Callable[[], None]
    residency: ResidencyManager
    recovery: Recovery
    placed: Placed
    prompt_cache: PromptCache | None
    keep: frozenset[str]
    arguments: Mapping[str, Any]
    edits: WeightEdits | None
    loras: Sequence[LoraSpec]
    caches: StepCaches
    artifacts: Artifacts | None

    def warm_up(self, first: RequestSpec) -> None:
        """Run the first request once with as few steps as it can; nothing of it is kept but weights where they are.

        Its embeddings are not kept either: the first real request is to do all that any request does.
        """
        request = with_fewest_steps(first)
        steps = request.num_inference_steps
        short = "" if steps is None else f" with {steps} step{'s' * (steps > 1)}"
        self.events.emit(Note(f"warm-up: the first request once{short}, nothing of it is kept"))
        started = time.perf_counter()
        with self.events.muted():
            quiet = replace(self, writer=None, prompt_cache=None, keep=frozenset(), artifacts=None)
            quiet.request(0, [request], warmup=True)
        self.events.emit(Note(f"warm-up done in {time.perf_counter() - started:.1f} s"))

    def request(self, index: int, requests: Sequence[RequestSpec], warmup: bool = False) -> RequestResult:
        request = requests[index]
        assert request.seeds is not None
        self.check()
        started = time.perf_counter()
        self.events.emit(RequestStarted(index, len(requests), request.prompt, request.seeds))
        if self.edits is not None:
            self.edits.apply_scaled(self.loras, request.lora_scales)
        meter = Meter(self.placed, index)
        stage_seconds: dict[str, float] = {}
        kept = Kept(self.artifacts, self.spec, request, index, self.store)
        values: dict[str, Value] = dict(kept.begun.values)
        try:
            self.residency.begin_request(self.graph, index, warmup)
            with self.caches.serving(request), kept.rescued(self.graph, values):
                for position, node in kept.nodes(self.graph):
                    values |= self._stage(position, node, index, request, values, stage_seconds, kept)
                    self._drop(position, values)
        finally:
            try:
                self.residency.finish_request()
            finally:
                self.store.end_request()
                self.events.emit(meter.read())
        seconds = time.perf_counter() - started
        if not kept.stops_early:
            self.events.emit(RequestFinished(index, seconds))
        kept.finish(self.graph, values)
        return RequestResult(index, request.seeds, seconds, stage_seconds, values)

    def _stage(
        self,
        position: int,
        node: Node,
        index: int,
        request: RequestSpec,
        values: Mapping[str, Value],
        stage_seconds: dict[str, float],
        kept: Kept,
    ) -> dict[str, Value]:
        name = node.spec.name
        self.check()
        self.events.emit(StageStarted(index, name, node.spec.kind, position, len(self.graph.nodes)))
        started = time.perf_counter()
        written = self._attempts(position, self._context(node, index, request, values), kept)
        written = {value: written[inside] for inside, value in node.writes.items() if inside in written}
        kept.stage(name, written)
        stage_seconds[name] = time.perf_counter() - started
        measured = self.placed.end_stage()
        shown = dict(written)
        self.events.emit(StageFinished(index, name, stage_seconds[name], *measured, values=shown))
        shown.clear()  # whoever keeps the event keeps no tensor on the device
        return written

    def _attempts(self, position: int, ctx: StageContext, kept: Kept) -> dict[str, Value]:
        """Run a stage; where memory ran out between the calls of its components, run it again from its newest step."""
        broke_off: float | None = None
        while True:
            try:
                with self._without_gradients():
                    self.residency.begin_stage(position)
                    with kept.loop(ctx, self.graph.nodes[position]):
                        written = dict(self.graph.nodes[position].stage_class().run(ctx))
                    _check_finite(ctx, written)
                    self.residency.end_stage()
                if broke_off is not None:
                    self.recovery.succeeded(f"stage '{ctx.stage}'", time.perf_counter() - broke_off)
                return written
            except FrameworkError:
                raise
            except KeyboardInterrupt as error:
                raise Interrupted("interrupted") from error
            except torch.OutOfMemoryError as error:
                failure = error
            except Exception as error:
                raise self._failed(ctx, error) from error
            broke_off = time.perf_counter() if broke_off is None else broke_off
            if hasattr(failure, "__notes__") or not self.residency.make_room():  # noted: given up for a component
                raise self._failed(ctx, failure) from failure
            failure.__traceback__ = None
            ctx.start_over()

    def _failed(self, ctx: StageContext, error: Exception) -> StageError:
        """Return the error that says stage, step, component and layer; notes say what lay on the device."""
        component = self.residency.current_component
        module = self.store.modules().get(component) if component is not None else None
        layer = marked_layer(error) or layer_of(error, module)
        failed = StageError(failure_line(ctx.stage, ctx.current_step, component, layer, error))
        if not hasattr(error, "__notes__") and isinstance(error, torch.OutOfMemoryError):
            self.residency.account(None, error)
        for note in getattr(error, "__notes__", ()):
            failed.add_note(note)
        return failed

    def _without_gradients(self) -> Any:
        """Sharded modules need the version counters that inference mode does without."""
        sharded = any(is_sharded(module) for module in self.store.modules().values())
        return torch.no_grad() if sharded else torch.inference_mode()

    def _context(self, node: Node, index: int, request: RequestSpec, values: Mapping[str, Value]) -> StageContext:
        reads = {**node.optional_reads, **node.reads}
        return StageContext(
            node=node,
            request=request,
            request_index=index,
            values={inside: values.get(value) for inside, value in reads.items()},
            store=self.store,
            family=self.family,
            residency=self.residency,
            events=self.events,
            check=self.check,
            prompt_cache=self.prompt_cache,
            writer=self.writer,
            arguments=self.arguments,
        )

    def _drop(self, position: int, values: dict[str, Value]) -> None:
        """Let go of what no later stage reads: latents and frames are large."""
        later = self.graph.nodes[position + 1 :]
        needed = {name for node in later for name in (*node.reads.values(), *node.optional_reads.values())}
        for name in [name for name in values if name not in needed and name not in self.keep]:
            del values[name]


def _check_finite(ctx: StageContext, written: Mapping[str, Any]) -> None:
    for name, value in written.items():
        if not all_finite(value):
            raise ctx.non_finite(ctx.watch.first_bad() or f"in its output '{name}'")
    bad = ctx.watch.first_bad()
    if bad is not None:
        raise ctx.non_finite(bad)
