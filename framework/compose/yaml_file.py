"""Reads one YAML file as untrusted data, with the line of every key. No torch, no Hydra.

Stricter than the usual loaders: tags, duplicate keys, alias bombs and a second document are refused. Plain scalars are
typed as people read them: `16:9`, `0755`, `2024_01` and dates stay text.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from framework.compose.text import TEXT_NAMES
from framework.errors import ConfigError, Problem
from framework.paths import ROOT

KeyPath = tuple[str | int, ...]
MAX_BYTES = 1 << 20
MAX_VALUES = 20_000

_STANDARD = ("tag:yaml.org,2002:str", "tag:yaml.org,2002:map", "tag:yaml.org,2002:seq")
_NULL = frozenset({"", "~", "null", "Null", "NULL"})
_TRUE = frozenset({"true", "True", "TRUE", "yes", "Yes", "YES", "on", "On", "ON"})
_FALSE = frozenset({"false", "False", "FALSE", "no", "No", "NO", "off", "Off", "OFF"})
_INTEGER = re.compile(r"[-+]?(0|[1-9][0-9]*)")
_FLOAT = re.compile(
    r"[-+]?(\.[0-9]+|(0|[1-9][0-9]*)(\.[0-9]*)?)([eE][-+]?[0-9]+)?|[-+]?\.(inf|Inf|INF)|\.(nan|NaN|NAN)"
)


class Literal(str):
    """Text of a prompt key: never interpolated, never retyped."""

    __slots__ = ()


@dataclass(frozen=True, slots=True)
class Document:
    """One file: `data` is the plain content, `lines` gives the line (from 1) of each key path."""

    path: Path
    shown: str
    data: Any
    lines: Mapping[KeyPath, int] = field(default_factory=dict)
    package: str | None = None  # of a `# @package` line among the comments at the top
    package_line: int = 0

    def where(self, path: KeyPath) -> str:
        """`file:line` of `path`, or of the nearest parent that has a line."""
        while path and path not in self.lines:
            path = path[:-1]
        return f"{self.shown}:{self.lines.get(path, 1)}"


def show_path(path: Path) -> str:
    """The short form of a path: relative to the current folder or to the program's own folder where it lies inside."""
    for base in (ROOT, Path.cwd()):
        if path.is_relative_to(base):
            return path.relative_to(base).as_posix()
    return str(path)


def read_document(path: Path) -> Document:
    """Read `path`; raises `ConfigError` with every problem that the file itself has."""
    shown = show_path(path)
    try:
        raw = path.read_bytes()
    except OSError as error:
        raise ConfigError.of("", f"cannot read the file: {error.strerror}", shown) from None
    if len(raw) > MAX_BYTES:
        raise ConfigError.of("", f"the file has {len(raw)} bytes; at most {MAX_BYTES} are read", shown)
    try:
        text = raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = raw[: error.start].count(b"\n") + 1
        raise ConfigError.of("", "the file is not UTF-8 text", f"{shown}:{line}") from None
    return parse_document(text, path, shown)


def parse_document(text: str, path: Path, shown: str) -> Document:
    """The same for text in hand."""
    reader = _Reader(shown)
    data = reader.build(_compose_nodes(text, shown))
    if reader.problems:
        raise ConfigError(reader.problems)
    package, line = _package(text)
    return Document(path, shown, data, reader.lines, package, line)


def _package(text: str) -> tuple[str | None, int]:
    """Return the package a file names for itself in its first comments, and the line."""
    for number, line in enumerate(text.splitlines(), 1):
        if line.strip() and not line.lstrip().startswith("#"):
            break
        match = re.match(r"\s*#\s*@package\s+(\S+)\s*$", line)
        if match:
            return match[1], number
    return None, 0


def _compose_nodes(text: str, shown: str) -> Any:
    import yaml

    loader = getattr(yaml, "CBaseLoader", yaml.BaseLoader)
    try:
        return yaml.compose(text, Loader=loader)
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None) or getattr(error, "context_mark", None)
        line = mark.line + 1 if mark is not None else 1
        reason = getattr(error, "problem", None) or str(error).splitlines()[0]
        raise ConfigError.of("", f"not valid YAML: {_in_words(reason)}", f"{shown}:{line}") from None
    except RecursionError:
        raise ConfigError.of("", "not valid YAML: nested too deep", f"{shown}:1") from None


def _in_words(reason: str) -> str:
    if "expected a single document" in reason or "but found another document" in reason:
        return "a second document begins; one file holds one document"
    return reason


class _Reader:
    """Turns nodes into plain data, noting lines and problems."""

    def __init__(self, shown: str) -> None:
        self.shown = shown
        self.lines: dict[KeyPath, int] = {}
        self.problems: list[Problem] = []
        self._left = MAX_VALUES

    def build(self, node: Any) -> Any:
        return None if node is None else self._value(node, (), False)

    def _value(self, node: Any, path: KeyPath, literal: bool) -> Any:
        self._left -= 1
        if self._left < 0:
            reason = f"the file expands to more than {MAX_VALUES} values; aliases are repeated too often"
            raise ConfigError.of("", reason, f"{self.shown}:{node.start_mark.line + 1}")
        self.lines.setdefault(path, node.start_mark.line + 1)
        if node.tag not in _STANDARD:
            self._problem(node, path, f"the tag '{_short(node.tag)}' is refused; only plain values are read")
            return None
        if node.id == "scalar":
            return _scalar(node.value, node.style, literal)
        if len(path) > 64:
            raise ConfigError.of("", "nested too deep", f"{self.shown}:{node.start_mark.line + 1}")
        if node.id == "sequence":
            return [self._value(item, (*path, index), literal) for index, item in enumerate(node.value)]
        return self._mapping(node, path, literal)

    def _mapping(self, node: Any, path: KeyPath, literal: bool) -> dict[str, Any]:
        result: dict[str, Any] = {}
        own: set[str] = set()
        for key_node, value_node, inherited in _merged(node):
            if key_node.id != "scalar":
                self._problem(key_node, path, "a key must be plain text")
                continue
            key = str(key_node.value)
            if key in own and inherited:
                continue
            here = (*path, key)
            if key in own:
                first = self.lines.get(here, 0)
                self._problem(key_node, here, f"duplicate key; it is already set in line {first}")
                continue
            own.add(key)
            self.lines[here] = key_node.start_mark.line + 1
            result[key] = self._value(value_node, here, literal or key in TEXT_NAMES)
        return result

    def _problem(self, node: Any, path: KeyPath, reason: str) -> None:
        self.problems.append(Problem(dotted(path), reason, f"{self.shown}:{node.start_mark.line + 1}"))


def _merged(node: Any, depth: int = 0) -> Iterator[tuple[Any, Any, bool]]:
    """Yield (key, value, inherited) of a mapping, its own pairs first, then those that `<<` brings in."""
    merges: list[Any] = []
    for key_node, value_node in node.value:
        if key_node.id == "scalar" and key_node.value == "<<" and value_node.id in ("mapping", "sequence"):
            merges += [value_node] if value_node.id == "mapping" else value_node.value
        else:
            yield key_node, value_node, depth > 0
    for other in merges:
        if other.id == "mapping" and depth < 8:
            yield from _merged(other, depth + 1)


def _scalar(text: str, style: str | None, literal: bool) -> Any:
    if style:  # quoted or a block; plain is None or empty, depending on the parser
        return Literal(text) if literal else text
    if text in _NULL:
        return None
    if literal:
        return Literal(text)
    if text in _TRUE or text in _FALSE:
        return text in _TRUE
    if _INTEGER.fullmatch(text):
        return int(text)
    if _FLOAT.fullmatch(text):
        return float(text.lower().replace(".inf", "inf").replace(".nan", "nan"))
    return text


def typed_text(text: str) -> Any:
    """What a plain scalar with this text is: a number, a boolean, null or the text itself."""
    return _scalar(text.strip(), None, False)


def _short(tag: str) -> str:
    return tag.replace("tag:yaml.org,2002:", "!!")


def dotted(path: KeyPath) -> str:
    """`("stages", "a", "after", 0)` is `stages.a.after[0]`."""
    text = ""
    for part in path:
        text += f"[{part}]" if isinstance(part, int) else f".{part}" if text else part
    return text
