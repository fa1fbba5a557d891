"""Where a request goes on, from the artifacts of an earlier process or of another run. Imports torch."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import torch

from framework.artifacts.files import About, BadArtifact, find_artifacts, load_artifact, read_about
from framework.errors import ConfigError
from framework.graph import Graph
from framework.values import Value

Tell = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Begun:
    """A request begins with the node at `position`; `values` were kept, `state` is that of the loop of `stage`."""

    position: int = 0
    values: Mapping[str, Value] = field(default_factory=dict)
    stage: str | None = None
    state: Mapping[str, Any] | None = None


@dataclass(frozen=True, slots=True)
class _Choice:
    """The files to read for a start at `position`, with the values wanted of each stage."""

    position: int
    files: tuple[Path, ...]
    wanted: frozenset[str]
    step: tuple[str, Path] | None


class Resume:
    """The artifacts in `folder`; `hashes` are those of a record, by file, and `finished` the requests that are done.

    `position` None: the newest complete state of each request; else all start there, whatever it was made of. `until`
    is the position of the last stage to run: no request goes on after it, unless what it makes is here already.
    """

    def __init__(
        self,
        folder: Path,
        graph: Graph,
        hashes: Mapping[Path, str] | None = None,
        finished: frozenset[int] = frozenset(),
        position: int | None = None,
        until: int | None = None,
    ) -> None:
        self._graph, self._position = graph, position
        self._last = len(graph.nodes) - 1 if until is None else until
        self._ends = until is not None
        self._hashes = dict(hashes or {})
        self.finished = finished
        self._files: dict[Path, About] = {}
        self._bad: list[tuple[str, BadArtifact]] = []
        for path, about in _found(folder):
            if isinstance(about, About):
                self._files[path] = about
            else:
                self._bad.append((path.name, about))

    def missing(self, num_requests: int) -> list[str]:
        """Return the values that a start at the fixed position needs and no artifact has."""
        assert self._position is not None
        for index in range(num_requests):
            needed = self._needed(self._position)
            lacking = sorted(needed - self._available(index).keys())
            if lacking:
                return lacking
        return []

    def unusable(self) -> str | None:
        """Why nothing here can be read, where all there is is damaged or no artifact."""
        return str(self._bad[0][1]) if self._bad and not self._files else None

    def stages(self) -> list[str]:
        """Names of the stages whose results are here."""
        return sorted({about.stage for about in self._files.values() if about.step is None})

    def begin(self, index: int, device: torch.device, made_of: Mapping[str, str], tell: Tell) -> Begun:
        """Read what request `index` goes on from; a damaged file is told of and passed over.

        Raises `ConfigError` for artifacts that were made of something else than `made_of`, naming it.
        """
        while self._bad:
            name, reason = self._bad.pop(0)
            tell(f"{name}: {reason}; it is not used")
        while True:
            choice = self._choose(index)
            read: dict[Path, dict[str, Any]] = {}
            try:
                for path in self._of(choice):
                    self._check(path, made_of)
                    read[path] = load_artifact(path, device, self._hashes.get(path))
            except BadArtifact as error:
                del self._files[path]
                if self._position is not None:
                    raise ConfigError.of("--from-stage", f"'{path}' cannot be used: {error}") from error
                tell(f"{path.name}: {error}; it is not used")
                continue
            return self._begun(index, choice, read, tell)

    def _begun(self, index: int, choice: _Choice, read: Mapping[Path, Mapping[str, Any]], tell: Tell) -> Begun:
        values = {name: value for path in choice.files for name, value in read[path].items() if name in choice.wanted}
        stage, state = None, None
        names = ", ".join(path.name for path in choice.files)
        if choice.position > self._last:
            tell(f"request {index + 1}: what stage '{self._graph.nodes[self._last].spec.name}' makes is kept ({names})")
        elif choice.step is not None:
            stage, path = choice.step
            state = read[path]
            tell(f"request {index + 1} goes on after step {state['step']} of stage '{stage}' ({path.name})")
        elif choice.files:
            first = self._graph.nodes[choice.position].spec.name
            tell(f"request {index + 1} goes on with stage '{first}' ({names})")
        elif self._position is None:
            tell(f"request {index + 1} begins again: nothing of it was kept")
        return Begun(choice.position, values, stage, state)

    def _choose(self, index: int) -> _Choice:
        available = self._available(index)
        last = self._graph.nodes[self._last]
        made = self._result(index, last.spec.name) if self._ends else None
        if made is not None:
            return _Choice(self._last + 1, (made,), frozenset(last.writes.values()), None)
        positions = range(self._last, -1, -1) if self._position is None else (self._position,)
        for position in positions:
            needed = self._needed(position)
            if needed <= available.keys():
                files = tuple(dict.fromkeys(available[name] for name in sorted(needed)))
                return _Choice(position, files, needed, self._newest_step(index, position))
        raise AssertionError("the first stage needs nothing")

    def _newest_step(self, index: int, position: int) -> tuple[str, Path] | None:
        if self._position is not None:
            return None
        for node in self._graph.nodes[position : self._last + 1]:
            own = {path: about.step for path, about in self._files.items() if self._is_of(about, index, node.spec.name)}
            steps = {path: step for path, step in own.items() if step is not None}
            if steps:
                return node.spec.name, max(steps, key=lambda path: steps[path])
        return None

    def _result(self, index: int, stage: str) -> Path | None:
        """The file of what a stage made for a request."""
        files = self._files.items()
        return next((path for path, about in files if self._is_of(about, index, stage) and about.step is None), None)

    def _available(self, index: int) -> dict[str, Path]:
        """Which file holds a value of a request."""
        found = {}
        for node in self._graph.nodes:
            for path, about in self._files.items():
                if self._is_of(about, index, node.spec.name) and about.step is None:
                    found.update(dict.fromkeys(node.writes.values(), path))
        return found

    def _needed(self, position: int) -> frozenset[str]:
        """What the nodes from `position` on read of those before it."""
        before = {name for node in self._graph.nodes[:position] for name in node.writes.values()}
        after = self._graph.nodes[position:]
        read = {name for node in after for name in (*node.reads.values(), *node.optional_reads.values())}
        return frozenset(read & before)

    @staticmethod
    def _is_of(about: About, index: int, stage: str) -> bool:
        return about.request == index and about.stage == stage

    @staticmethod
    def _of(choice: _Choice) -> Iterator[Path]:
        yield from choice.files
        if choice.step is not None:
            yield choice.step[1]

    def _check(self, path: Path, made_of: Mapping[str, str]) -> None:
        if self._position is not None:
            return
        then = self._files[path].made_of
        changed = [name for name, value in made_of.items() if then.get(name) != value]
        if changed:
            reason = f"{' and '.join(changed)} changed since '{path}' was kept"
            raise ConfigError.of("--resume", reason, hint="`run --from FOLDER` starts it again in a new folder")


def _found(source: Path) -> Iterator[tuple[Path, About | BadArtifact]]:
    """The artifacts of a run folder, of any other folder, or one file."""
    if source.is_file():
        try:
            yield source, replace(read_about(source), request=0)
        except BadArtifact as error:
            yield source, error
    else:
        yield from find_artifacts(source)
