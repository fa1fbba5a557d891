"""How one value of an axis is written as a word of the command line, and how literal values are listed. No torch."""

import json
import re
from collections.abc import Mapping
from typing import Any

from framework.compose.overrides import FREE_TEXT, GROUPS
from framework.compose.text import is_path_key, is_text_key, quote
from framework.errors import ConfigError

_CHOICE = re.compile(r"choice\((.*)\)", re.DOTALL)
_QUOTED = re.compile(r"""\s*(?:'((?:\\'|[^'])*)'|"((?:\\"|[^"])*)")\s*(?:,|$)""")
_PLAIN = re.compile(r"([^,]*)(?:,|$)")


def is_literal_key(key: str) -> bool:
    """True where a comma belongs to the value: prompts, files, and keys that take `a=x,b=y`."""
    return is_text_key(key) or is_path_key(key) or key in FREE_TEXT


def split_choice(text: str) -> list[tuple[str, bool]] | None:
    """Return the items of `choice(a, 'b, c')` and whether each was quoted; None for any other text.

    Items are taken as typed, without blanks around them; a comma inside one needs quotes around the whole item.
    """
    match = _CHOICE.fullmatch(text)
    if match is None:
        return None
    rest, items = match[1], []
    while True:
        quoted = _QUOTED.match(rest)
        found = quoted or _PLAIN.match(rest)
        assert found is not None  # the plain pattern matches every text
        if quoted is not None:
            mark = "'" if quoted[1] is not None else '"'
            inner = quoted[1] if quoted[1] is not None else quoted[2]
            items.append((inner.replace("\\" + mark, mark), True))
        else:
            items.append((found[1].strip(), False))
        if not found[0].endswith(","):
            return items
        rest = rest[found.end() :]


def text_word(key: str, text: str) -> str:
    """The word that gives a prompt key exactly `text`."""
    return f"{key}={'@' if text.startswith('@') else ''}{text}"


def word_of(key: str, value: Any, where: str = "") -> str:
    """The word that gives `key` the plain `value` of a file; raises `ConfigError` for what no word can say."""
    if is_text_key(key):
        if not isinstance(value, str):
            raise ConfigError.of(key, f"expected text, got {show(value)}", where)
        return text_word(key, value)
    if key in GROUPS or (isinstance(value, str) and key in FREE_TEXT):
        return f"{key}={value}"
    return f"{key}={_in_grammar(value)}"


def _in_grammar(value: Any) -> str:
    """A plain value in Hydra's grammar."""
    if isinstance(value, str):
        return quote(value)
    if isinstance(value, Mapping):
        return "{" + ",".join(f"{name}:{_in_grammar(inner)}" for name, inner in value.items()) + "}"
    if isinstance(value, list | tuple):
        return "[" + ",".join(_in_grammar(item) for item in value) + "]"
    return "null" if value is None else str(value).lower() if isinstance(value, bool) else str(value)


def show(value: Any) -> str:
    """A value as tables and CSV show it: text as it is, all else as JSON."""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
