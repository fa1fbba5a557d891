"""Takes secrets out of what is stored or shown. No torch."""

import re
from collections.abc import Mapping
from typing import Any

MASK = "[redacted]"
_TEXT_OF_THE_USER = frozenset({"prompt", "negative_prompt"})  # literal by contract: repeated exactly by `--from`
_SECRET_KEY = re.compile(
    r"(^|[_-])(token|secrets?|passwords?|passwd|credentials?|api[_-]?keys?|access[_-]?keys?|authorization|cookies?)$",
    re.IGNORECASE,
)
_USERINFO = re.compile(r"(?P<scheme>\b[a-z][a-z0-9+.-]*://)[^\s/?#@]+@", re.IGNORECASE)
_SECRET_PAIR = re.compile(
    r"(?P<name>(?<![A-Za-z0-9])(?:[\w-]*[_-])?(?:token|secret|password|passwd|api[_-]?key|access[_-]?key|signature))"
    r"=[^\s&#,;'\"]+",
    re.IGNORECASE,
)
_KNOWN_SHAPES = re.compile(
    r"\b(?:hf_[A-Za-z0-9]{16,}|gh[pousr]_[A-Za-z0-9]{20,}|sk-[A-Za-z0-9_-]{20,}|AKIA[0-9A-Z]{16})\b"
    r"|\bBearer\s+[A-Za-z0-9._~+/=-]{8,}"
)


def redact(value: Any) -> Any:
    """Return a plain copy of `value`: text under a secret's name is masked, other text goes through `redact_text`.

    Prompts are kept as they are.
    """
    if isinstance(value, Mapping):
        return {str(key): _entry(str(key), entry) for key, entry in value.items()}
    if isinstance(value, list | tuple):
        return [redact(entry) for entry in value]
    return redact_text(value) if isinstance(value, str) else value


def _entry(key: str, value: Any) -> Any:
    if isinstance(value, str) and key in _TEXT_OF_THE_USER:
        return value
    if value is not None and not isinstance(value, bool) and _SECRET_KEY.search(key):
        return MASK
    return redact(value)


def redact_text(text: str) -> str:
    """Mask credentials inside a text: a URL's user and password, `token=...`, and tokens of well-known shape."""
    text = _USERINFO.sub(r"\g<scheme>", text)
    text = _SECRET_PAIR.sub(rf"\g<name>={MASK}", text)
    return _KNOWN_SHAPES.sub(MASK, text)
