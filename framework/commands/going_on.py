"""`run --resume`, `--from-stage` and `--until`: a run that begins or ends elsewhere. torch inside functions only."""

import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from framework.commands.from_record import spec_from_record
from framework.compose.arguments import Flags
from framework.compose.provenance import leaves_of
from framework.compose.yaml_file import dotted
from framework.errors import ConfigError, FrameworkError, Interrupted, Origin, Problem, did_you_mean
from framework.graph import Graph
from framework.outputs.read_record import read_record
from framework.outputs.record import RecordSink
from framework.outputs.redact import redact
from framework.report.lines import LogFile
from framework.spec import RunSpec

if TYPE_CHECKING:
    from framework.runtime.artifacts import Artifacts
    from framework.runtime.events import EventBus
    from framework.runtime.resume import Resume

RESUME, FROM_STAGE, UNTIL = "--resume", "--from-stage", "--until"
DECIDING = ("prompt", "negative_prompt", "seed", "requests", "request", "pipeline", "device", "numerics", "loras")
"""Keys that decide the picture, or where it is computed."""
NOT_DECIDING = ("pipeline.defaults.residency", "pipeline.defaults.layerwise", "pipeline.hints", "pipeline.name")
TEXTS = ("prompt", "negative_prompt", "requests")


@dataclass(frozen=True, slots=True)
class GoingOn:
    """`folder` and `earlier` are those of a run that is continued in place; `source` has the artifacts to start from.

    `position` is that of the first stage, None for the newest complete state; `until` is the last stage, None for all.
    """

    folder: Path | None = None
    earlier: Mapping[str, Any] | None = None
    source: Path | None = None
    position: int | None = None
    until: str | None = None

    def resume(self, spec: RunSpec, graph: Graph) -> "Resume | None":
        """Look at the artifacts. Raises `ConfigError` where a value that the first stage needs is not among them."""
        from framework.runtime.resume import Resume

        if self.source is None:
            return None
        if self.position is None:
            assert self.earlier is not None
            names = [node.spec.name for node in graph.nodes]
            last = None if self.until is None else names.index(self.until)
            finished = finished_requests(self.earlier)
            return Resume(self.source, graph, _hashes(self.source, self.earlier), finished, until=last)
        found = Resume(self.source, graph, position=self.position)
        unusable = found.unusable()
        if unusable is not None:
            raise ConfigError.of(FROM_STAGE, f"'{self.source}' cannot be used: {unusable}")
        if self.source.is_file() and len(spec.requests) > 1:
            raise ConfigError.of(FROM_STAGE, f"one file serves one request, and there are {len(spec.requests)}")
        missing = found.missing(len(spec.requests))
        if missing:
            stage = graph.nodes[self.position].spec.name
            kept = ", ".join(found.stages()) or "nothing"
            reason = f"'{self.source}' has no {' and no '.join(missing)}, which '{stage}' or a later stage reads"
            raise ConfigError.of(FROM_STAGE, reason, hint=f"results kept there: {kept}; see checkpoint.stages")
        return found

    def artifacts(
        self, folder: Path, spec: RunSpec, graph: Graph, bus: "EventBus", resume: "Resume | None"
    ) -> "Artifacts":
        from framework.runtime.artifacts import Artifacts

        return Artifacts(folder, spec, graph, bus, resume, self.until)


def finished_requests(record: Mapping[str, Any]) -> frozenset[int]:
    """Return the indices of the requests that a record says are done."""
    done = set()
    for index, request in enumerate(record["requests"]):
        timings = request.get("timings")
        if isinstance(timings, dict) and isinstance(timings.get("total"), int | float):
            done.add(index)
    return frozenset(done)


def spec_to_resume(folder: Path, overrides: Sequence[str]) -> tuple[RunSpec, Mapping[str, Any]]:
    """Return the spec of a run that did not end and its record; what does not change the picture may be overridden.

    Raises `ConfigError` for a run that is done, and for overrides of what decides the picture, each with both values.
    """
    record = read_record(folder, RESUME)
    spec = spec_from_record(record, overrides, in_place=True)
    if len(finished_requests(record)) >= len(spec.requests):
        hint = f"`run --from {folder}` repeats it"
        raise ConfigError.of(RESUME, f"all requests of '{folder}' are done: there is nothing to resume", hint=hint)
    changed = [*_changes(record["config"], spec, DECIDING), *_other_place(record["config"], spec)]
    if changed:
        raise ConfigError(changed)
    return spec, record


def _other_place(before: Mapping[str, Any], spec: RunSpec) -> Iterator[Problem]:
    """Yield a problem for every word that names another folder: the artifacts and the record lie in this one."""
    for found in _changes(before, spec, ("output.root", "output.name")):
        reason = "a run is continued in its own folder"
        yield replace(found, reason=reason, hint="remove it, or start a new one with `run --from FOLDER`")


def resuming(folder: Path) -> str:
    """Return the line that says how the run in `folder` is continued."""
    return f"to go on: framework run --resume {shlex.quote(str(folder))}"


def say_where(error: BaseException, keeper: RecordSink, log: LogFile) -> None:
    """Close the record of a run that ended early and put the reason and the traceback into its log."""
    import traceback

    if not keeper.finished:  # it ended outside the run proper, which would have closed the record
        stopped = isinstance(error, KeyboardInterrupt | Interrupted)
        keeper.finish("interrupted" if stopped else "failed", str(error) or type(error).__name__)
    error.add_note(f"log: {log.path}\nrecord: {keeper.path}")
    if not isinstance(error, FrameworkError) or error.exit_code not in (2, 3):  # else the same would be refused again
        error.add_note(resuming(keeper.path.parent))
    log.write("".join(traceback.format_exception(error)).rstrip())


def going_on(flags: Flags, spec: RunSpec, graph: Graph, record: Mapping[str, Any] | None) -> GoingOn:
    """Read the flags, with the record that `--resume` or `--from` has named. Raises `ConfigError`."""
    names = [node.spec.name for node in graph.nodes]
    until = None if flags.until is None else names[_position(names, flags.until, UNTIL)]
    until = None if until == names[-1] else until
    if flags.resume is not None:
        given = Path(flags.resume)
        folder = (given if given.is_dir() else given.parent).resolve()
        if flags.from_folder or flags.from_stage:
            other = "--from" if flags.from_folder else FROM_STAGE
            raise ConfigError.of(RESUME, f"goes on where the run ended, so it takes no {other}", hint="remove it")
        return GoingOn(folder, record, folder, until=until)
    if flags.from_stage is None:
        return GoingOn(until=until)
    stage, equals, file = flags.from_stage.partition("=")
    position = _position(names, stage, FROM_STAGE)
    if until is not None and names.index(until) < position:
        raise ConfigError.of(UNTIL, f"'{until}' comes before '{stage}', with which the run begins")
    if equals and record is None:
        return GoingOn(source=_existing(Path(file)), position=position, until=until)
    if record is None or equals:
        hint = f"write {FROM_STAGE} {stage} --from FOLDER, or {FROM_STAGE} {stage}=FILE without --from"
        raise ConfigError.of(FROM_STAGE, "needs one place to read results from", hint=hint)
    _refuse_unread(record, spec, graph, position)
    given = Path(flags.from_folder or "")
    return GoingOn(source=given if given.is_dir() else given.parent, position=position, until=until)


def _refuse_unread(record: Mapping[str, Any], spec: RunSpec, graph: Graph, position: int) -> None:
    """Refuse new values that only skipped stages would read."""
    loops = any("latents" in node.writes.values() for node in graph.nodes[position:])
    encodes = any(node.spec.kind in ("text_encode", "diffusers_pipeline") for node in graph.nodes[position:])
    unread = () if encodes else TEXTS
    unread = unread if loops or encodes else (*unread, "seed", "request")
    stage = graph.nodes[position].spec.name
    problems = [
        Problem(found.key, f"no stage from '{stage}' on reads it", found.where, "remove it, or start earlier")
        for found in _changes(record["config"], spec, unread)
        if found.key != "request.fps"
    ]
    if problems:
        raise ConfigError(problems)


def _changes(before: Mapping[str, Any], spec: RunSpec, heads: Sequence[str]) -> Iterator[Problem]:
    """Yield a problem for every value under `heads` that is not the recorded one."""
    then, now = _leaves(before), _leaves(redact(spec.config))
    for key in dict.fromkeys((*now, *then)):
        decides = any(_is_under(key, head) for head in heads) and not any(_is_under(key, o) for o in NOT_DECIDING)
        if decides and then.get(key) != now.get(key):
            origin: Origin | None = spec.provenance.get(key)
            reason = f"the run has {_shown(then.get(key))}, and this would be {_shown(now.get(key))}"
            hint = "a run is continued as it was; remove it, or start a new one with `run --from FOLDER`"
            yield Problem(key, reason, origin.where if origin else "", hint)


def _leaves(config: Mapping[str, Any]) -> dict[str, Any]:
    return {dotted(path): value for path, value in leaves_of(config, ()) if value is not None}


def _is_under(key: str, head: str) -> bool:
    return key == head or key.startswith((f"{head}.", f"{head}["))


def _shown(value: Any) -> str:
    text = repr(value)
    return "nothing" if value is None else text if len(text) <= 60 else f"{text[:57]}..."


def _position(names: Sequence[str], stage: str, flag: str) -> int:
    if stage not in names:
        raise ConfigError.of(flag, f"there is no stage '{stage}'", hint=did_you_mean(stage, names))
    return names.index(stage)


def _existing(path: Path) -> Path:
    if not path.exists():
        raise ConfigError.of(FROM_STAGE, f"'{path}' does not exist")
    return path


def _hashes(folder: Path, record: Mapping[str, Any]) -> dict[Path, str]:
    entries = [entry for request in record["requests"] for entry in request.get("artifacts") or ()]
    pairs = ((entry.get("path"), entry.get("sha256")) for entry in entries if isinstance(entry, dict))
    return {folder / path: sha for path, sha in pairs if isinstance(path, str) and isinstance(sha, str)}
