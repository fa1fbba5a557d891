"""`run`: make what a config says. Imports torch only once everything that can be checked without it has passed."""

import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from framework.commands.command_line import command_line
from framework.commands.fetching import compose_fetched, fetch_missing
from framework.commands.from_record import compare_frames, refuse_other_configs, spec_from_record
from framework.commands.going_on import GoingOn, going_on, resuming, say_where, spec_to_resume
from framework.compose import compose
from framework.compose.arguments import COMPOSING, Flags
from framework.errors import ConfigError, FrameworkError, LoadError
from framework.graph import Graph, build_graph
from framework.outputs.folder import check_free_space, check_name, claim_folder
from framework.outputs.frames import needed_bytes
from framework.outputs.hashing import config_sha256
from framework.outputs.lock import FolderLock
from framework.outputs.read_record import read_record
from framework.outputs.record import RecordSink
from framework.outputs.redact import redact
from framework.report.lines import LogFile
from framework.report.progress import find_progress
from framework.report.watching import Watchers, log_level, planned_peak
from framework.runtime.determinism import prepare_environment
from framework.runtime.events import Event, EventBus, Note, OutputSaved
from framework.spec import RunSpec

SUMMARY = "Run a pipeline: compose, check, load, execute and keep the results."
EXAMPLES = (
    "framework run",
    'framework run pipeline=digits prompt="a three moving left" seed=3',
    "framework run pipeline=wan2 residency=low_vram --dry-run",
    "framework run --resume outputs/FOLDER",
)
ACCEPTED = COMPOSING | {"from_folder", "resume", "until", "from_stage", "dry_run", "trace"}


@dataclass(slots=True)
class SavedOutputs:
    """A sink that remembers what was saved: `paths` in order, `hashes` of frames by request."""

    paths: list[str] = field(default_factory=list)
    hashes: dict[int, set[str]] = field(default_factory=dict)

    def __call__(self, event: Event) -> None:
        if isinstance(event, OutputSaved):
            self.paths.append(event.path)
            if event.frames_sha256 is not None:
                self.hashes.setdefault(event.request, set()).add(event.frames_sha256)


def main(overrides: list[str], flags: Flags) -> int:
    """Run what `overrides` compose to, or repeat a recorded run; return the exit code."""
    spec, record = _spec_and_record(overrides, flags)
    if flags.trace:
        spec = replace(spec, output=replace(spec.output, trace=True))
    graph = build_graph(spec.pipeline)
    try:
        check_name(spec.output)
        going = going_on(flags, spec, graph, record)
        if flags.dry_run:
            return dry_run(spec, graph)
        return _run(spec, graph, flags, record, command_line(overrides, flags), going)
    except (ConfigError, LoadError) as error:
        error.locate(spec.provenance)
        raise


def _spec_and_record(overrides: list[str], flags: Flags) -> tuple[RunSpec, Mapping[str, Any] | None]:
    """The spec, and the record it comes from where a flag names one."""
    refuse_other_configs(flags)
    if flags.resume:
        return spec_to_resume(Path(flags.resume), overrides)
    if flags.from_folder:
        record = read_record(Path(flags.from_folder))
        return spec_from_record(record, overrides), record
    return _compose(overrides, flags), None


def _compose(overrides: list[str], flags: Flags) -> RunSpec:
    return compose(overrides, flags) if flags.dry_run else compose_fetched(overrides, flags, _say(flags))


def _say(flags: Flags) -> Callable[[str], None]:
    """Tells what is fetched, unless told to be quiet."""
    return (lambda line: None) if flags.quiet else lambda line: print(line, file=sys.stderr, flush=True)


def dry_run(spec: RunSpec, graph: Graph) -> int:
    """Say what would run and whether the weights are here; reads no weight, imports no torch, makes no folder."""
    from framework.loading.source import locate_model

    print(f"pipeline {spec.pipeline.name}: {' -> '.join(node.spec.name for node in graph.nodes)}")
    for placement in spec.placements.values():
        print(f"  {placement.component}: {placement.mode}")
    for note in spec.notes:
        print(f"note: {note}")
    try:
        print(f"weights: {locate_model(spec.pipeline.model, spec.pipeline.hints)}")
    except FrameworkError as error:
        print(f"weights: {error}")
    print(f"requests: {len(spec.requests)}; nothing was run")
    return 0


def _run(
    spec: RunSpec, graph: Graph, flags: Flags, record: Mapping[str, Any] | None, command: str, going: GoingOn
) -> int:
    from framework.loading.source import locate_model

    fetch_missing(
        spec.pipeline,
        graph.used_components(),
        spec.loras,
        _say(flags),
        progress=not flags.quiet,
        bound=spec.budget.disk,
    )
    locate_model(spec.pipeline.model, spec.pipeline.hints)
    prepare_environment(spec.numerics.deterministic)
    if not flags.quiet:
        print("importing torch and diffusers, some seconds ...", file=sys.stderr, flush=True)
    from framework.outputs.writer import OutputWriter, check_writers
    from framework.runtime.run import check_requests, execute
    from framework.tracing.stalls import StallMeter

    check_requests(spec.pipeline, spec.requests, spec.provenance, spec.config.get("requests") or ())
    check_writers(spec.output, spec.requests)
    level = log_level(spec)
    resume = going.resume(spec, graph)
    needed = needed_bytes(spec.requests, 2 if spec.checkpoint.stages == "all" else 1)
    if going.folder is not None:
        check_free_space(going.folder, needed)
    folder = going.folder or claim_folder(spec.output, needed)
    lock = FolderLock(folder)
    more = going.folder is not None
    saved, log = SavedOutputs(), LogFile(folder, level=level, more=more)
    keeper = RecordSink(folder, spec, earlier=going.earlier if more else None)
    bus = EventBus(log, keeper, saved)
    progress = None if flags.quiet else find_progress(sys.stderr, level, planned_peak(spec))
    if progress is not None:
        bus.subscribe(progress)
    watchers = Watchers(spec, folder, bus, command)
    meter = StallMeter(bus) if progress is not None and watchers.tracer is None else None
    if meter is not None:
        bus.subscribe(meter)
    try:
        for note in spec.notes:
            bus.emit(Note(note))
        writer = OutputWriter(spec.output, folder, bus, spec.requests, config_sha256(redact(spec.config)))
        artifacts = going.artifacts(folder, spec, graph, bus, resume)
        execute(spec, graph, bus, writer, tracer=watchers.tracer or meter, artifacts=artifacts)
        if going.until is not None:
            bus.emit(Note(f"ended after stage '{going.until}'; {resuming(folder)}"))
        elif not saved.paths:
            bus.emit(Note("no stage wrote a result: the graph has no stage of kind 'export'"))
        if record is not None and not more and going.until is None:
            bus.emit(Note(compare_frames(saved.hashes, record)))
    except BaseException as error:
        say_where(error, keeper, log)
        raise
    finally:
        watchers.finish()
        if meter is not None:
            meter.finish()
        if progress is not None:
            progress.close()
        log.close()
        lock.release()
    for path in (*saved.paths, *map(str, watchers.paths), str(keeper.path), str(log.path)):
        print(path)
    return 0
