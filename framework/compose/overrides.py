"""Reads `key=value` words of the command line into checked overrides for Hydra. No torch; Hydra's grammar only."""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from framework.compose.refusals import INSTANTIATE
from framework.compose.spellings import as_map
from framework.compose.text import is_path_key, is_text_key, quote, read_text_value
from framework.errors import ConfigError, Problem

GROUPS = ("pipeline", "residency", "hardware", "output", "sweep", "experiment")
MODES_KEY = "component_residency"
FREE_TEXT = frozenset(
    {
        MODES_KEY,
        "cpu_offload_components",
        "layerwise_offload_components",
        "layerwise_offload_modules",
        "layerwise_prefetch_size",
        "layerwise_resident_layers",
        "layerwise_residency_policy",
    }
)
"""Keys that take `a=x,b=y`, `a,b` and JSON as text; what Hydra's grammar cannot read reaches their own parser."""

_WORD = re.compile(r"(\+\+|\+|~)?([^=]*)(=?)(.*)", re.DOTALL)
_GROUP_FILE = re.compile(r"(?!.*\.\.)[\w.-]+(/[\w.-]+)*")
_KEY = re.compile(r"[A-Za-z_][\w-]*(\.[\w-]+)*")


@dataclass(frozen=True, slots=True)
class Override:
    """One word: `line` as typed, `key` dotted, `value` plain data (text of a literal key already read).

    `kind` is `group`, `value`, `delete`, or one of the words that do not reach Hydra: `searchpath`, `plugins`,
    `requests`.
    """

    line: str
    key: str
    value: Any
    kind: str

    @property
    def where(self) -> str:
        return f"from the command line: {shorten(self.line)}"

    def leaves(self) -> Iterator[tuple[str, Any]]:
        """Yield (dotted key, value) of every leaf this override sets; lists stay whole."""
        yield from flatten(self.key, self.value)


def flatten(key: str, value: Any) -> Iterator[tuple[str, Any]]:
    """Yield the leaves of nested mappings; an empty mapping is a leaf."""
    if isinstance(value, dict) and value:
        for name, inner in value.items():
            yield from flatten(f"{key}.{name}", inner)
    else:
        yield key, value


def shorten(line: str) -> str:
    """A word in one line of at most 120 characters, for messages."""
    text = line if len(line) <= 120 else f"{line[:117]}..."
    return text.replace("\r", "\\r").replace("\n", "\\n")


def listed_words(words: object) -> list[str]:
    """Return the words of a list, as Python may give it. Raises `TypeError` for anything else."""
    wanted = "a config is a list of words such as ['pipeline=digits']"
    if isinstance(words, str | bytes | Mapping) or not isinstance(words, Iterable):
        raise TypeError(f"{wanted}, not {'one text' if isinstance(words, str) else type(words).__name__}")
    listed = list(words)
    for word in listed:
        if not isinstance(word, str):
            raise TypeError(f"{wanted}; {word!r} is no text")
    return listed


def read_overrides(words: Sequence[str]) -> list[Override]:
    """Read every word; raises `ConfigError` with all that are wrong, `TypeError` for what is no list of words."""
    words = listed_words(words)
    overrides: list[Override] = []
    problems: list[Problem] = []
    for word in words:
        try:
            overrides.append(_read(word))
        except ConfigError as error:
            problems += error.problems
    if problems:
        raise ConfigError(problems)
    return overrides


def refuse_swept_texts(words: Sequence[Override]) -> None:
    """Raise `ConfigError` for each `prompt=choice(...)` of a multirun, where it is a sweep and not a text."""
    swept = [word for word in words if is_text_key(word.key) and word.line.partition("=")[2].startswith("choice(")]
    if swept:
        reason, hint = "several values for one run", "use `framework sweep`; without -m it is a text"
        raise ConfigError(Problem(word.key, reason, word.where, hint) for word in swept)


def _read(word: str) -> Override:
    match = _WORD.fullmatch(word)
    assert match is not None  # the pattern matches every text
    sign, key, equals, text = match[1] or "", match[2], match[3], match[4]
    where = f"from the command line: {shorten(word)}"
    if any("\ud800" <= letter <= "\udfff" for letter in word):
        raise ConfigError.of("", "the word is not UTF-8 text", f"from the command line: {shorten(ascii(word))}")
    _check_key(key, sign, equals, where)
    if sign == "~":
        return Override(word, key, None, "delete")
    if key == "hydra.searchpath":
        return Override(word, key, _searchpath(_grammar_value(f"{key}={text}", key, where), where), "searchpath")
    if is_text_key(key):
        return Override(word, key, read_text_value(text, key), "value")
    if key == "requests":
        return Override(word, key, None if text == "null" else _requests_file(text, where), "requests")
    if key == "plugins":
        return Override(word, key, _names(_grammar_value(f"{key}={text}", key, where), where), "plugins")
    if key in GROUPS or (key.partition("@")[0] in GROUPS and "@" in key):
        return Override(word, key, _group_choice(text, key, where), "group")
    if key in FREE_TEXT and ("=" in text or '"' in text or ("," in text and text[:1] not in "[{")):
        return Override(word, key, _spread(key, text), "value")
    value = _grammar_value(f"{key}={_quoted(key, text)}", key, where)
    _refuse_instantiation(key, value, where)
    return Override(word, key, _spread(key, value), "value")


def _spread(key: str, value: Any) -> Any:
    """Residency modes as the map they mean, which is put over the map of a file and not in its place."""
    return as_map(value, "COMPONENT=MODE") if key == MODES_KEY else value


def _check_key(key: str, sign: str, equals: str, where: str) -> None:
    if not equals and sign != "~":
        raise ConfigError.of("", f"expected key=value, got '{shorten(key)}'", where)
    if key.partition(".")[0].partition("/")[0] == "hydra" and key != "hydra.searchpath":
        raise ConfigError.of(key, "Hydra's own settings are refused", where, "only hydra.searchpath may be set")
    parent, _, name = key.rpartition(".")
    _refuse_instantiation(parent, {name: None}, where)
    if "@" in key and key.partition("@")[0] in GROUPS:
        raise ConfigError.of(
            key, "a group cannot be put into another package", where, f"write {key.partition('@')[0]}="
        )
    if not _KEY.fullmatch(key):
        raise ConfigError.of("", f"'{shorten(key)}' is not a key; keys look like request.height", where)


def _refuse_instantiation(key: str, value: Any, where: str) -> None:
    """Refuse the keys by which Hydra would build objects, anywhere in a value."""
    for name, inner in (
        value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    ):
        here = f"{key}.{name}" if key else str(name)
        if name in INSTANTIATE:
            raise ConfigError.of(here, "nothing is ever instantiated from a config; this key is refused", where)
        _refuse_instantiation(here, inner, where)


def _grammar_value(line: str, key: str, where: str) -> Any:
    """Parse one override by Hydra's grammar and return plain data."""
    from hydra.core.override_parser.overrides_parser import OverridesParser
    from hydra.errors import HydraException

    try:
        parsed = OverridesParser.create().parse_override(line)
    except (HydraException, RecursionError):
        hint = "quote it twice, as in key='\"a, b\"', if it is text"
        raise ConfigError.of(key, "the value cannot be read", where, hint) from None
    if parsed.is_sweep_override():
        hint = "a list is written [a,b]; many runs are started with `framework sweep`"
        raise ConfigError.of(key, "several values for one run", where, hint)
    return plain_value(parsed.value())


def plain_value(value: Any) -> Any:
    """Turn the parser's values (quoted text, nested) into plain data."""
    if isinstance(value, dict):
        return {str(plain_value(name)): plain_value(inner) for name, inner in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain_value(item) for item in value]
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    return value.text if hasattr(value, "text") else str(value)


def _quoted(key: str, text: str) -> str:
    """Quote the value of a path key, which may hold what the grammar cannot; explicit quotes and `${` keep theirs."""
    if not is_path_key(key) or text == "null" or text[:1] in ("'", '"') or "${" in text:
        return text
    return quote(text)


def _requests_file(text: str, where: str) -> str:
    if not text.startswith("@") or len(text) < 2:
        raise ConfigError.of("requests", "needs a file of requests", where, "write requests=@file.jsonl")
    return text[1:]


def _group_choice(text: str, key: str, where: str) -> str | None:
    value = _grammar_value(f"{key}={text}", key, where) if "," in text or "(" in text else text
    if not isinstance(value, str) or not value or value == "null" or not _GROUP_FILE.fullmatch(value):
        article = "an" if key[0] in "aeiou" else "a"
        raise ConfigError.of(key, f"'{shorten(text)}' is not the name of {article} {key} file", where)
    return value


def _names(value: Any, where: str) -> list[str]:
    names = [value] if isinstance(value, str) else value
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        raise ConfigError.of("plugins", "expected a list of module names", where, "write plugins=[my_package.stages]")
    return names


def _searchpath(value: Any, where: str) -> list[str]:
    folders = [value] if isinstance(value, str) else value
    if not isinstance(folders, list) or not all(isinstance(folder, str) for folder in folders):
        raise ConfigError.of("hydra.searchpath", "expected a list of folders", where, "write hydra.searchpath=[DIR]")
    for folder in folders:
        if "://" in folder and not folder.startswith("file://"):
            raise ConfigError.of("hydra.searchpath", f"'{folder}' is not a folder", where, "write file://DIR")
    return [folder.removeprefix("file://") for folder in folders]
