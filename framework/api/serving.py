"""Serves the requests of one spec for Python: sinks, folder, record. Imports torch in functions only."""

import sys
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from framework.api.results import FORMS, Form, Output, Result
from framework.api.watching import Collector, EventCallback, SavedFiles, StepCallback, TimelineSink
from framework.commands.fetching import fetch_missing
from framework.commands.going_on import say_where
from framework.errors import ConfigError, did_you_mean
from framework.graph import Graph, build_graph
from framework.loading.source import locate_model
from framework.outputs.folder import check_name, claim_folder
from framework.outputs.frames import needed_bytes
from framework.outputs.hashing import config_sha256
from framework.outputs.lock import FolderLock
from framework.outputs.record import RecordSink
from framework.outputs.redact import redact
from framework.report.lines import LogFile
from framework.report.progress import find_progress
from framework.report.watching import Watchers, log_level, planned_peak
from framework.runtime import events
from framework.runtime.determinism import prepare_environment
from framework.spec import RunSpec
from framework.tracing.spans import Span

if TYPE_CHECKING:
    from framework.runtime.artifacts import Artifacts
    from framework.runtime.context import Writer
    from framework.runtime.warm import Warm
    from framework.runtime.watch import Watch


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """How a run is to be told of and given back."""

    form: Form = "images"
    on_step: StepCallback | None = None
    on_event: EventCallback | None = None
    progress: bool = False

    def subscribe(self, bus: events.EventBus) -> None:
        """Let the callbacks hear the bus."""
        if self.on_step is not None or self.on_event is not None:
            bus.subscribe(self._tell)

    def _tell(self, event: events.Event) -> None:
        if self.on_step is not None and isinstance(event, events.StepDone):
            self.on_step(event)
        if self.on_event is not None:
            self.on_event(event)


def serve(spec: RunSpec, asked: Asked, warm: "Warm | None" = None) -> Result:
    """Run `spec` and return what it made; raises what ended it, with notes on where log and record are."""
    if asked.form not in FORMS:
        raise ConfigError.of("outputs", f"there is no form '{asked.form}'", hint=did_you_mean(asked.form, FORMS))
    graph = build_graph(spec.pipeline)
    prepare(spec, graph, asked.progress)
    with ExitStack() as stack:
        one_way = _in_folder if asked.form == "paths" else _in_memory
        return one_way(spec, graph, asked, warm, stack)


def prepare(spec: RunSpec, graph: Graph, loud: bool) -> None:
    """Check what needs no weights, and fetch what is missing, before torch is imported."""
    say = (lambda line: print(line, file=sys.stderr, flush=True)) if loud else (lambda line: None)
    check_name(spec.output)
    used = graph.used_components()
    fetch_missing(spec.pipeline, used, spec.loras, say, progress=loud, bound=spec.budget.disk)
    locate_model(spec.pipeline.model, spec.pipeline.hints)
    prepare_environment(spec.numerics.deterministic)


def load(spec: RunSpec, warm: "Warm", asked: Asked) -> None:
    """Load the weights of `spec` into `warm`, or move those that are there to where `spec` wants them."""
    from framework.runtime.run import execute

    graph = build_graph(spec.pipeline)
    prepare(spec, graph, asked.progress)
    bus = events.EventBus()
    with ExitStack() as stack:
        _show(spec, asked, bus, stack)
        asked.subscribe(bus)
        execute(spec, graph, bus, warm=warm, serve=False)


def _in_memory(spec: RunSpec, graph: Graph, asked: Asked, warm: "Warm | None", stack: ExitStack) -> Result:
    from framework.tracing.tracer import Tracer

    bus = events.EventBus()
    timeline, keeper, collector = TimelineSink(), RecordSink(None, spec), Collector(asked.form, bus)
    for sink in (keeper, timeline, collector):
        bus.subscribe(sink)
    tracer = Tracer(bus) if spec.output.trace else None
    if tracer is not None:
        bus.subscribe(tracer)
        stack.callback(tracer.finish)
    _show(spec, asked, bus, stack)
    asked.subscribe(bus)
    _run(spec, graph, bus, collector, warm, tracer)
    if tracer is not None:
        tracer.finish()
    return _result(keeper, timeline, tuple(collector.outputs), tuple(tracer.spans) if tracer is not None else ())


def _in_folder(spec: RunSpec, graph: Graph, asked: Asked, warm: "Warm | None", stack: ExitStack) -> Result:
    from framework.outputs.writer import OutputWriter, check_writers
    from framework.runtime.artifacts import Artifacts

    check_writers(spec.output, spec.requests)
    folder = claim_folder(spec.output, needed_bytes(spec.requests))
    lock = FolderLock(folder)
    stack.callback(lock.release)
    log, keeper = LogFile(folder, level=log_level(spec)), RecordSink(folder, spec)
    stack.callback(log.close)
    timeline, saved = TimelineSink(), SavedFiles()
    bus = events.EventBus(log, keeper, timeline, saved)
    _show(spec, asked, bus, stack)
    watchers = Watchers(spec, folder, bus, f"python -m framework run --from {folder}")
    asked.subscribe(bus)
    writer = OutputWriter(spec.output, folder, bus, spec.requests, config_sha256(redact(spec.config)))
    try:
        _run(spec, graph, bus, writer, warm, watchers.tracer, Artifacts(folder, spec, graph, bus))
    except BaseException as error:
        say_where(error, keeper, log)
        raise
    finally:
        watchers.finish()
    spans = tuple(watchers.tracer.spans) if watchers.tracer is not None else ()
    return _result(keeper, timeline, tuple(saved.outputs), spans, folder)


def _run(
    spec: RunSpec,
    graph: Graph,
    bus: events.EventBus,
    writer: "Writer",
    warm: "Warm | None",
    tracer: "Watch | None",
    artifacts: "Artifacts | None" = None,
) -> None:
    from framework.runtime.run import execute

    for note in spec.notes:
        bus.emit(events.Note(note))
    execute(spec, graph, bus, writer, warm=warm, tracer=tracer, artifacts=artifacts)


def _show(spec: RunSpec, asked: Asked, bus: events.EventBus, stack: ExitStack) -> None:
    """Bars, or lines in a notebook, where progress is asked for."""
    if asked.progress:
        shown = find_progress(sys.stderr, log_level(spec), planned_peak(spec))
        stack.callback(shown.close)
        bus.subscribe(shown)


def _result(
    keeper: RecordSink,
    timeline: TimelineSink,
    outputs: tuple[Output, ...],
    spans: tuple[Span, ...],
    folder: Path | None = None,
) -> Result:
    return Result(
        outputs=outputs,
        record=keeper.content(),
        timeline=timeline.timeline(spans),
        seconds=timeline.seconds,
        folder=folder,
        notes=tuple(timeline.notes),
    )
