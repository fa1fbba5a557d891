"""One normaliser for every way a setting may be spelled: text, lists, maps, JSON, pairs, booleans as text. No torch.

Every function raises `ValueError` with a reason that reads well behind the key.
"""

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from framework.errors import did_you_mean
from framework.registry import MODES, STRATEGIES, fold_name

Pair = tuple[str, Any]

_FLAGS = {
    **dict.fromkeys(("true", "on", "yes", "y", "t", "1"), True),
    **dict.fromkeys(("false", "off", "no", "n", "f", "0"), False),
}


class Pairs(tuple[Pair, ...]):
    """A map as read from JSON, with its order and its duplicates kept."""


def read_flag(value: Any) -> bool:
    """A boolean, also as text (`off`, `0`, `no`, any case); anything else is refused, the empty text included."""
    if isinstance(value, bool):
        return value
    if isinstance(value, int | str) and (flag := _FLAGS.get(str(value).strip().lower())) is not None:
        return flag
    raise ValueError(f"{quoted(value)} is neither true nor false")


def mode_names() -> tuple[str, ...]:
    """The built-in modes, then the registered strategies that are not among them."""
    return (*MODES, *(name for name in STRATEGIES.names() if fold_name(name) not in MODES))


def read_mode(value: Any) -> str:
    """The residency mode that `value` names, with case and `_` against `-` folded."""
    choices = mode_names()
    if isinstance(value, bool):
        raise ValueError(
            f"a boolean is not a residency mode (YAML reads off, no, on and yes as booleans); "
            f"modes are {', '.join(choices)}"
        )
    if not isinstance(value, str):
        raise ValueError(f"{quoted(value)} is not a residency mode; modes are {', '.join(choices)}")
    folded = fold_name(value)
    for choice in choices:
        if fold_name(choice) == folded:
            return choice
    if folded == "snapshot-offload":
        raise ValueError("'snapshot-offload' is not offered: component-offload never copies weights back either")
    hint = did_you_mean(value, choices)
    raise ValueError(
        f"unknown residency mode {quoted(value)}; modes are {', '.join(choices)}"
        + (f"; {hint}" if hint.startswith("did") else "")
    )


def read_names(value: Any) -> tuple[str, ...]:
    """A list of names from `a,b`, a list of such texts, or a JSON list; blank pieces and repeats dropped."""
    names: dict[str, None] = {}
    for text in _texts(value):
        for piece in text.split(","):
            if name := piece.strip().lower().replace("-", "_"):
                names[name] = None
    return tuple(names)


def read_pairs(value: Any, form: str) -> Pairs:
    """Pairs from a map, a JSON object, `name=value,...`, or a list of any of these; pairs with a null are unset.

    `form` is what the message shows, for example `COMPONENT=MODE`.
    """
    return Pairs((_name(name, form), item) for name, item in _raw_pairs(value, form) if item is not None)


def as_map(value: Any, form: str) -> Any:
    """The map that text or a list of pairs means, so that layers merge alike however each is written.

    What is empty, interpolated, no pairs, or names one thing twice is returned as it is, for its reader to judge.
    """
    if not value or isinstance(value, Mapping) or "${" in str(value):
        return value
    try:
        pairs = read_pairs(value, form)
    except ValueError:
        return value
    return dict(pairs) if pairs and len(dict(pairs)) == len(pairs) else value


def quoted(value: Any) -> str:
    """The value as a message shows it, cut to one short line."""
    text = repr(value) if isinstance(value, str) else shown(value)
    return text if len(text) <= 60 else text[:57] + "..."


def shown(value: Any) -> str:
    """The value as the user would write it: `true`, `0.5`, `text`."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{name}: {shown(item)}" for name, item in value.items()) + "}"
    if isinstance(value, Sequence) and not isinstance(value, str):
        return "[" + ", ".join(shown(item) for item in value) + "]"
    return str(value)


def _name(name: Any, form: str) -> str:
    if not isinstance(name, str):
        raise ValueError(f"{quoted(name)} is not a name; write {form}")
    if not name.strip():
        raise ValueError(f"a name is empty; write {form}")
    return name.strip().lower().replace("-", "_")


def _raw_pairs(value: Any, form: str) -> Iterable[tuple[Any, Any]]:
    if isinstance(value, Mapping):
        return list(value.items())
    if isinstance(value, Pairs):
        return value
    if isinstance(value, str):
        return _text_pairs(value, form)
    if isinstance(value, Sequence):
        return [pair for item in value for pair in _raw_pairs(item, form)]
    raise ValueError(f"{quoted(value)} is not understood; write {form}")


def _text_pairs(text: str, form: str) -> Iterable[tuple[Any, Any]]:
    listed = re.fullmatch(r"\s*\[([^\[\]{}]*)\]\s*", text)
    if listed and '"' not in text:  # a list of the command line, whose items need no quotes
        return _text_pairs(listed[1].replace("'", ""), form)
    if text.lstrip().startswith(("{", "[")):
        return _raw_pairs(_json(text), form)
    pairs = []
    for piece in filter(None, (part.strip() for part in text.split(","))):
        name, equals, item = piece.partition("=")
        if not equals:
            raise ValueError(f"{quoted(piece)} lacks '='; write {form}")
        pairs.append((name, item.strip()))
    return pairs


def _texts(value: Any) -> Iterable[str]:
    if isinstance(value, str):
        return _texts(_json(value)) if value.lstrip().startswith("[") else [value]
    if isinstance(value, Sequence) and not isinstance(value, Pairs):
        if bad := [item for item in value if not isinstance(item, str)]:
            raise ValueError(f"{quoted(bad[0])} is not a name")
        return list(value)
    raise ValueError(f"{quoted(value)} is not a list of names; write 'a,b' or [a, b]")


def _json(text: str) -> Any:
    try:
        return json.loads(text, object_pairs_hook=Pairs)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{quoted(text)} is not valid JSON") from error
