"""What a run keeps in its folder to be continued from, and which of it goes again. Imports torch."""

import hashlib
import os
from collections.abc import Callable, Mapping
from dataclasses import asdict
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch

from framework.artifacts.files import About, artifact_path, find_artifacts, remove_rests, save_artifact
from framework.artifacts.tensor_tree import CannotKeep
from framework.errors import OutputError
from framework.graph import Graph, Node
from framework.outputs.json_text import to_json
from framework.runtime.events import ArtifactDropped, ArtifactSaved, EventBus, Note
from framework.runtime.resume import Begun, Resume
from framework.runtime.store import ComponentStore
from framework.spec import CheckpointSpec, RequestSpec, RunSpec
from framework.values import Value

WHOLE = "diffusers_pipeline"
LATENTS, FRAMES = "latents", "frames"
LIBRARIES = ("torch", "diffusers", "transformers")


class Artifacts:
    """The artifacts of one run; `resume` is what it goes on from, `until` a stage whose result is wanted in any case.

    A disk that refuses one costs the artifact, never the run.
    """

    def __init__(
        self,
        folder: Path,
        spec: RunSpec,
        graph: Graph,
        events: EventBus,
        resume: Resume | None = None,
        until: str | None = None,
    ) -> None:
        self._folder, self._spec, self._events = folder, spec, events
        self._resume, self.until = resume, until
        self._kept = kept_stages(graph, spec.checkpoint) | ({until} if until is not None else set())
        self._lasting = {node.spec.name for node in graph.nodes if LATENTS in node.writes.values()}
        self._broken = False
        self._files: dict[int, dict[Path, About]] = {}
        remove_rests(folder)
        for path, about in find_artifacts(folder):
            if isinstance(about, About):
                self._files.setdefault(about.request, {})[path] = about

    @property
    def every_steps(self) -> int | None:
        return None if self._broken else self._spec.checkpoint.every_steps

    def is_done(self, index: int) -> bool:
        """Whether an earlier process has finished this request."""
        return self._resume is not None and index in self._resume.finished

    def keeps(self, stage: str) -> bool:
        return stage in self._kept

    def begin(self, index: int, device: torch.device, made_of: Mapping[str, str]) -> Begun:
        """Return where request `index` begins, with what was kept of it."""
        if self._resume is None:
            return Begun()
        return self._resume.begin(index, device, made_of, lambda text: self._events.emit(Note(text)))

    def keep_stage(self, stage: str, index: int, made_of: Mapping[str, str], values: Mapping[str, Value]) -> None:
        """Keep what a stage wrote, if that is wanted; the steps of its loop are not needed any more."""
        if stage not in self._kept or not values:
            return
        if self._save(About(stage, index, None, made_of), values) and not self._spec.output.keep_artifacts:
            self._drop(index, lambda about: about.stage == stage and about.step is not None)

    def keeps_steps(self) -> bool:
        """Whether the state of a loop may be kept at all: when it breaks off, if not every so many steps."""
        return self.every_steps is not None or self._spec.checkpoint.stages != "off"

    def keep_step(
        self, stage: str, index: int, made_of: Mapping[str, str], step: int, state: Mapping[str, Any]
    ) -> None:
        """Keep the state of a loop; the one of an earlier step is not needed any more. Raises `CannotKeep`."""
        if self._save(About(stage, index, step, made_of), state) and not self._spec.output.keep_artifacts:
            self._drop(index, lambda about: about.stage == stage and about.step not in (None, step))

    def rescue(self, index: int, graph: Graph, made_of: Mapping[str, str], values: Mapping[str, Value]) -> None:
        """A request broke off: keep what its stages to come would have read. Frames are the writer's to keep."""
        if self._spec.checkpoint.stages == "off":
            return
        for node in graph.nodes:
            names = [name for name in node.writes.values() if name in values and name != FRAMES]
            about = About(node.spec.name, index, None, made_of)
            if names and about.stage not in self._kept:
                self._save(about, {name: values[name] for name in names})

    def finish_request(self, index: int) -> None:
        """The request is done: only latents stay, for another decode, unless everything is to stay."""
        if not self._spec.output.keep_artifacts:
            self._drop(index, lambda about: about.step is not None or about.stage not in self._lasting)

    def _save(self, about: About, values: Mapping[str, Any]) -> bool:
        wanted = about.stage == self.until and about.step is None
        if self._broken and not wanted:
            return False
        path = artifact_path(self._folder, about, len(self._spec.requests))
        try:
            saved = save_artifact(path, about, values)
        except CannotKeep as error:
            if about.step is not None:
                raise
            self._events.emit(Note(f"the result of stage '{about.stage}' is not kept: {error}"))
            return False
        except OSError as error:
            reason = os.strerror(error.errno) if error.errno else str(error)
            if wanted:
                raise OutputError(f"cannot keep the result of stage '{about.stage}' in {path}: {reason}") from error
            self._broken = True
            self._events.emit(Note(f"cannot write {path}: {reason}; nothing more is kept to continue from"))
            return False
        self._files.setdefault(about.request, {})[path] = about
        inside = ArtifactSaved(about.request, about.stage, about.step, str(path), saved.sha256, saved.size_bytes)
        self._events.emit(inside)
        return True

    def _drop(self, index: int, unneeded: Callable[[About], bool]) -> None:
        files = self._files.get(index, {})
        for path in [path for path, about in files.items() if unneeded(about)]:
            del files[path]
            path.unlink(missing_ok=True)
            self._events.emit(ArtifactDropped(index, str(path)))


def kept_stages(graph: Graph, checkpoint: CheckpointSpec) -> frozenset[str]:
    """Return the stages whose results are kept while a request runs."""
    if checkpoint.stages == "all":
        return frozenset(node.spec.name for node in graph.nodes if node.writes)
    if checkpoint.stages == "off":
        return frozenset()
    if checkpoint.stages != "auto":
        return frozenset(checkpoint.stages)
    kept = {node.spec.name for node in graph.nodes if LATENTS in node.writes.values()}
    if checkpoint.every_steps is not None:
        kept |= _read_by_loops(graph)
    return frozenset(kept)


def _read_by_loops(graph: Graph) -> set[str]:
    read = {name for node in graph.nodes if runs_loop(node) for name in (*node.reads.values(), *_optional(node))}
    return {node.spec.name for node in graph.nodes if read & set(node.writes.values())}


def _optional(node: Node) -> tuple[str, ...]:
    return tuple(node.optional_reads.values())


def runs_loop(node: Node) -> bool:
    """Whether a stage runs a denoising loop, as far as the graph tells."""
    return LATENTS in node.writes.values() or node.spec.kind == WHOLE


def made_of(spec: RunSpec, request: RequestSpec, store: ComponentStore) -> dict[str, str]:
    """Return hashes of what the values of a request depend on, by what to call it."""
    pipeline, scheduler = spec.pipeline, spec.pipeline.scheduler
    stages = {name: [one.kind, dict(one.inputs), dict(one.outputs)] for name, one in pipeline.stages.items()}
    changes = [scheduler.class_name, dict(scheduler.options), scheduler.flow_shift]
    parts: dict[str, Any] = {
        "the request": asdict(request),
        "its files": [_stamp(file) for file in (request.image, request.video, request.mask)],
        "the pipeline": [pipeline.family, pipeline.backend, changes, dict(pipeline.args), stages],
        "numerics": repr(spec.numerics),
        "the weights": store.identity(*sorted(store.managed)),
        "the versions of torch, diffusers or transformers": [version(name) for name in LIBRARIES],
    }
    return {name: hashlib.sha256(to_json(part).encode()).hexdigest() for name, part in parts.items()}


def _stamp(file: str | None) -> list[Any] | None:
    if file is None or not Path(file).is_file():
        return None
    status = Path(file).stat()
    return [file, status.st_size, status.st_mtime_ns]
