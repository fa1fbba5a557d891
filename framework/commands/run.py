"""`run`: make what a config says. Imports torch only once everything that can be checked without it has passed."""

import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from framework.commands.fetching import compose_fetched, fetch_missing
from framework.commands.from_record import compare_frames, spec_from_record
from framework.compose import compose
from framework.compose.arguments import COMPOSING, Flags
from framework.errors import ConfigError, FrameworkError, Interrupted
from framework.graph import Graph, build_graph
from framework.outputs.folder import check_name, claim_folder
from framework.outputs.frames import needed_bytes
from framework.outputs.hashing import config_sha256
from framework.outputs.read_record import read_record
from framework.outputs.record import RecordSink
from framework.outputs.redact import redact
from framework.report.lines import LogFile
from framework.report.progress import find_progress
from framework.runtime.determinism import prepare_environment
from framework.runtime.events import Event, EventBus, Note, OutputSaved
from framework.spec import RunSpec

SUMMARY = "Run a pipeline: compose, check, load, execute and keep the results."
EXAMPLES = (
    "framework run",
    'framework run pipeline=digits prompt="a three moving left" seed=3',
    "framework run pipeline=wan2 residency=low_vram --dry-run",
)
ACCEPTED = COMPOSING | {"from_folder", "dry_run"}


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
    record = read_record(Path(flags.from_folder)) if flags.from_folder else None
    spec = _compose(overrides, flags) if record is None else spec_from_record(record, overrides)
    graph = build_graph(spec.pipeline)
    try:
        check_name(spec.output)
        return dry_run(spec, graph) if flags.dry_run else _run(spec, graph, flags, record)
    except ConfigError as error:
        error.locate(spec.provenance)
        raise


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


def _run(spec: RunSpec, graph: Graph, flags: Flags, record: Mapping[str, Any] | None) -> int:
    from framework.loading.source import locate_model

    fetch_missing(spec.pipeline, graph.used_components(), spec.loras, _say(flags), progress=not flags.quiet)
    locate_model(spec.pipeline.model, spec.pipeline.hints)
    prepare_environment(spec.numerics.deterministic)
    if not flags.quiet:
        print("importing torch and diffusers, some seconds ...", file=sys.stderr, flush=True)
    from framework.outputs.writer import OutputWriter, check_writers
    from framework.runtime.run import check_requests, execute

    check_requests(spec.pipeline, spec.requests, spec.provenance, spec.config.get("requests") or ())
    check_writers(spec.output, spec.requests)
    folder = claim_folder(spec.output, needed_bytes(spec.requests))
    saved, log, keeper = SavedOutputs(), LogFile(folder), RecordSink(folder, spec)
    bus = EventBus(log, keeper, saved)
    progress = None if flags.quiet else find_progress(sys.stderr)
    if progress is not None:
        bus.subscribe(progress)
    try:
        for note in spec.notes:
            bus.emit(Note(note))
        writer = OutputWriter(spec.output, folder, bus, spec.requests, config_sha256(redact(spec.config)))
        execute(spec, graph, bus, writer)
        if not saved.paths:
            bus.emit(Note("no stage wrote a result: the graph has no stage of kind 'export'"))
        if record is not None:
            bus.emit(Note(compare_frames(saved.hashes, record)))
    except BaseException as error:
        _say_where(error, keeper, log)
        raise
    finally:
        if progress is not None:
            progress.close()
        log.close()
    for path in (*saved.paths, str(keeper.path), str(log.path)):
        print(path)
    return 0


def _say_where(error: BaseException, keeper: RecordSink, log: LogFile) -> None:
    """Close the record of a run that ended early and put the reason and the traceback into its log."""
    import traceback

    log.write("".join(traceback.format_exception(error)).rstrip())
    if not keeper.finished:  # it ended outside the run proper, which would have closed the record
        stopped = isinstance(error, KeyboardInterrupt | Interrupted)
        keeper.finish("interrupted" if stopped else "failed", str(error) or type(error).__name__)
    error.add_note(f"log: {log.path}\nrecord: {keeper.path}")
