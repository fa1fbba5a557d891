"""Reads the `sweep` group of a command: what a preset of `conf/sweep` or an experiment says. No torch."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from framework.compose.arguments import Flags
from framework.compose.composer import compose_words
from framework.compose.overrides import Override
from framework.compose.provenance import Provenance, leaves_of, trace
from framework.compose.schema import check_schema
from framework.compose.yaml_file import dotted
from framework.errors import ConfigError
from framework.sweep.axes import Axis, Value, axis_of_file, is_of_the_sweep, prompts_axis
from framework.sweep.grid import Assignment, Grid
from framework.sweep.words import word_of

if TYPE_CHECKING:
    from framework.compose.hydra_compose import Composition

Compose = Callable[[Sequence[Override], Flags], "Composition"]
GROUP = "sweep"


def read_group(
    words: Sequence[Override], flags: Flags, composed: Compose = compose_words
) -> tuple[dict[str, Any], Provenance]:
    """Return the checked `sweep` group that the words choose, without nulls, and where its values stand.

    `words` are those that all jobs share. Raises `ConfigError` with every problem of the group.
    """
    from framework.compose.resolve import apply_overrides, to_plain

    composition = composed([word for word in words if word.kind in ("group", "searchpath")], flags)
    own = [word for word in words if word.key.startswith(f"{GROUP}.")]
    provenance = trace(composition.layers, own, {word.key: word for word in words if word.kind == "group"})
    apply_overrides(composition.config, own, composition.journal)
    group = to_plain(composition.config, composition.journal, provenance.where).get(GROUP) or {}
    try:
        check_schema(group, GROUP, lambda path: provenance.where((GROUP, *path)))
    except ConfigError as error:
        raise ConfigError(type(p)(f"{GROUP}.{p.key}", p.reason, p.where, p.hint) for p in error.problems) from None
    return {key: value for key, value in group.items() if value is not None and key != "defaults"}, provenance


def read_grid(
    group: Mapping[str, Any],
    provenance: Provenance,
    typed: Sequence[Axis],
    flags: Flags,
    said: Mapping[str, Override],
    folders: Sequence[Path] = (),
) -> Grid:
    """Return the grid of a group with the axes of the command line over those of its file.

    `said` are the words of the command line with one value, by key: each beats the file's values of its key.
    """
    axes = {axis.key: axis for axis in _axes(group, provenance, folders)}
    fixed = {key: said[key] for key in axes if key in said}
    axes |= {key: Axis(key, (Value(word.line, word.value),), word.where) for key, word in fixed.items()}
    axes |= {axis.key: axis for axis in _distinct(typed, said)}
    file = flags.prompts or group.get("prompts")
    if file is not None:
        where = f"from the command line: --prompts {file}" if flags.prompts else provenance.locate("sweep.prompts")
        if "prompt" in axes or "prompt" in said:
            raise ConfigError.of("prompt", "a prompts file and another prompt", where, "keep one")
        axes["prompt"] = prompts_axis(str(file), where)
    written = enumerate(group.get("points") or ())
    points = [_assignments(point, f"sweep.points[{number}]", provenance) for number, point in written]
    _refuse_twice(points, provenance)
    kept = tuple(tuple(own for own in point if own.key not in said) for point in points)
    exclude = tuple(dict(leaves(entry)) for entry in group.get("exclude") or ())
    return Grid(tuple(axes.values()), kept, exclude, provenance.locate("sweep.exclude"))


def _distinct(typed: Sequence[Axis], said: Iterable[str]) -> Sequence[Axis]:
    """Refuse a key that the command line names twice, which would lose one of its values."""
    seen = set(said)
    for axis in typed:
        if axis.key in seen:
            raise ConfigError.of(axis.key, "is named twice", axis.where, "write all its values in one word")
        seen.add(axis.key)
    return typed


def _axes(group: Mapping[str, Any], provenance: Provenance, folders: Sequence[Path]) -> list[Axis]:
    found = []
    for key, written in leaves(group.get("axes") or {}):
        where = provenance.locate(f"sweep.axes.{key}")
        found.append(axis_of_file(key, written, where, folders))
    return found


def leaves(nested: Mapping[str, Any]) -> list[tuple[str, Any]]:
    """Return (dotted key, value) of a map whose keys are dotted or nested, as people write either."""
    return [(dotted(path), value) for path, value in leaves_of(nested, ())]


def _refuse_twice(points: Sequence[Sequence[Assignment]], provenance: Provenance) -> None:
    """Two points alike would be one job, and nobody would be told."""
    said = [sorted((own.key, own.word) for own in point) for point in points]
    for number, words in enumerate(said):
        same = said.index(words)
        if same < number:
            key = f"sweep.points[{number}]"
            raise ConfigError.of(key, f"sets the same as sweep.points[{same}]", provenance.locate(key), "remove it")


def _assignments(point: Mapping[str, Any], key: str, provenance: Provenance) -> tuple[Assignment, ...]:
    found = []
    for name, value in leaves(point):
        where = provenance.locate(key)
        if is_of_the_sweep(name):
            raise ConfigError.of(f"{key}.{name}", "only the sweep as a whole can say this", where)
        found.append(Assignment(name, word_of(name, value, where), value, where))
    if not found:
        raise ConfigError.of(key, "a point sets nothing", provenance.locate(key))
    return tuple(found)
