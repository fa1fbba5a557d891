"""Splits the words of a command line into what all jobs share and the axes of a sweep. Hydra's grammar; no torch."""

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from framework.compose.groups import options_of
from framework.compose.overrides import GROUPS, plain_value, shorten
from framework.compose.text import is_text_key, read_file, read_text_value
from framework.errors import ConfigError, Problem
from framework.sweep.words import is_literal_key, show, split_choice, text_word, word_of

if TYPE_CHECKING:
    from hydra.core.override_parser.types import Override

MAX_VALUES = 10_000
OF_THE_SWEEP = ("output.root", "output.name", "plugins", "requests", "hydra.searchpath")
"""Keys that a sweep has once; no axis and no point may name them, nor anything of the group `sweep`."""


_PLAIN = re.compile(r"[A-Za-z][\w./:@-]*")  # a word of the grammar that needs no escape


@dataclass(frozen=True, slots=True)
class Value:
    """One value of an axis: the word that says it to one run, and the plain value."""

    word: str
    value: Any

    @property
    def shown(self) -> str:
        return show(self.value)


@dataclass(frozen=True, slots=True)
class Axis:
    """A key and the values it takes; `where` is printable. `of_file`: it stands in a file and not in the command."""

    key: str
    values: tuple[Value, ...]
    where: str
    of_file: bool = False


def is_of_the_sweep(key: str) -> bool:
    """Whether only the sweep as a whole may say `key`."""
    return key in OF_THE_SWEEP or key.partition(".")[0] == "sweep" or key.partition(".")[0] == "hydra"


def split_words(words: Sequence[str], folders: Sequence[Path] = ()) -> tuple[list[str], list[Axis]]:
    """Return the words of all jobs, as typed, and the axes in the order they were typed.

    Grammar keys sweep by `a,b`, `choice`, `range` and (groups only) `glob`; prompts and files, whose commas belong to
    them, by `choice('a, b',c)` alone. Raises `ConfigError` with every wrong axis.
    """
    fixed: list[str] = []
    axes: list[Axis] = []
    problems: list[Problem] = []
    for word in words:
        try:
            axis = _axis(word, folders)
        except ConfigError as error:
            problems += error.problems
            continue
        if axis is None:
            fixed.append(word)
        else:
            axes.append(axis)
    if problems:
        raise ConfigError(problems)
    return fixed, axes


def _axis(word: str, folders: Sequence[Path]) -> Axis | None:
    """The axis of a word, None for one value or none; what cannot be read is left to the reader of overrides."""
    key, equals, text = word.partition("=")
    if not equals or key.startswith("~"):
        return None
    name, where = key.lstrip("+"), f"from the command line: {shorten(word)}"
    values = _literals(key, text) if is_literal_key(name) else _in_grammar(word, name, folders, where)
    if values is None:
        return None
    if is_of_the_sweep(name):
        raise ConfigError.of(name, "a sweep has one value for all its jobs", where, "a list is written [a,b]")
    return Axis(name, _checked(name, values, where), where)


def _literals(key: str, text: str) -> list[Value] | None:
    items = split_choice(text)
    name = key.lstrip("+")
    if items is None:
        return None
    if not is_text_key(name):
        return [Value(word_of(key, item), item) for item, _ in items]
    texts = [item if quoted else read_text_value(item, name) for item, quoted in items]
    return [Value(text_word(key, item), item) for item in texts]


def _in_grammar(word: str, key: str, folders: Sequence[Path], where: str) -> list[Value] | None:
    from hydra.core.override_parser.overrides_parser import OverridesParser
    from hydra.core.override_parser.types import Override
    from hydra.errors import HydraException

    if not any(mark in word for mark in ",()"):
        return None  # nothing in it can be several values, and the grammar takes a while
    try:
        parsed: Override = OverridesParser.create().parse_override(word)
    except (HydraException, RecursionError):
        return None
    if not parsed.is_sweep_override():
        return None
    if not parsed.is_discrete_sweep():
        raise ConfigError.of(key, "an interval has no end of values", where, "write range(start,stop,step)")
    try:
        return _listed(parsed, word, key, folders, where)
    except (HydraException, ValueError, ArithmeticError):  # a step of 0 or nan, a choice beside other values
        hint = "write a,b or choice(a,b) or range(start,stop,step)"
        raise ConfigError.of(key, "these values cannot be listed", where, hint) from None


def _listed(parsed: "Override", word: str, key: str, folders: Sequence[Path], where: str) -> list[Value]:
    """The values of an axis that the grammar has taken; Hydra raises for some of them only now."""
    from hydra.core.override_parser.types import Glob, Transformer

    sign = word[: len(word) - len(word.lstrip("+"))]
    listed = [parsed.value()] if isinstance(parsed.value(), Glob) else parsed.sweep_iterator(Transformer.identity)
    found: list[Value] = []
    for value in listed:
        if isinstance(value, Glob):
            found += [Value(f"{sign}{key}={name}", name) for name in _matching(value, key, folders, where)]
        else:
            plain = type(value) is str and _PLAIN.fullmatch(value)
            text = value if plain else Transformer.str(value)
            found.append(Value(f"{sign}{key}={text}", plain_value(value)))
        if len(found) > MAX_VALUES:
            raise ConfigError.of(key, f"more than {MAX_VALUES} values", where)
    return found


def _matching(pattern: Any, key: str, folders: Sequence[Path], where: str) -> list[str]:
    """The files of a group that a glob() means."""
    if key not in GROUPS:
        hint = f"groups: {', '.join(GROUPS)}"
        raise ConfigError.of(key, "glob() chooses among the files of a group", where, hint)
    names: list[str] = pattern.filter(options_of(key, folders))
    return names


def axis_of_file(key: str, written: Any, where: str, folders: Sequence[Path] = ()) -> Axis:
    """The axis that a preset's `axes` names: a list of values, one value, or text in Hydra's grammar."""
    if is_of_the_sweep(key):
        raise ConfigError.of(key, "only the sweep as a whole can say this", where)
    values: list[Value] | None = None
    if isinstance(written, str) and not is_literal_key(key):
        values = _in_grammar(f"{key}={written}", key, folders, where)
    if values is None:
        items = written if isinstance(written, list) else [written]
        values = [Value(word_of(key, item, where), item) for item in items]
    return Axis(key, _checked(key, values, where), where, of_file=True)


def prompts_axis(file: str, where: str) -> Axis:
    """The axis of a prompts file: one prompt a line, literal; blank lines are none. `@` before the name may stand."""
    try:
        text = read_file(file.removeprefix("@"), "sweep.prompts")
    except ConfigError as error:
        raise ConfigError(replace(problem, where=where, hint="") for problem in error.problems) from None
    lines = [line for line in text.split("\n") if line.strip()]
    return Axis("prompt", _checked("prompt", [Value(text_word("prompt", line), line) for line in lines], where), where)


def _checked(key: str, values: Sequence[Value], where: str) -> tuple[Value, ...]:
    if not values:
        raise ConfigError.of(key, "no value is left to sweep over", where)
    seen: set[str] = set()
    for value in values:
        if value.word in seen:
            raise ConfigError.of(key, f"'{shorten(value.shown)}' appears twice", where)
        seen.add(value.word)
    return tuple(values)
