"""JSON text as we write it everywhere: UTF-8, readable in every script, always valid. No torch."""

import json
from typing import Any


def to_json(value: Any, indent: int | None = None) -> str:
    """Return `value` as JSON; half a surrogate pair, which UTF-8 cannot hold, stays as its escape.

    Mappings, tuples and paths are accepted beside JSON's own types; not-a-number is refused with `ValueError`.
    """
    text = json.dumps(value, ensure_ascii=False, allow_nan=False, indent=indent, default=_plain)
    return text.encode("utf-8", "backslashreplace").decode("utf-8")


def _plain(value: Any) -> Any:
    return dict(value) if hasattr(value, "keys") else str(value)
