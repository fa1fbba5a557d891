"""Prompt text is literal: what counts as text, how it is read and how it is quoted for Hydra. No torch, no Hydra."""

import re

from framework.errors import ConfigError
from framework.paths import expand

MAX_TEXT_BYTES = 1 << 20
TEXT_NAMES = frozenset({"prompt", "negative_prompt"})
"""Keys with these last names hold text that is taken as typed; the schemas mark them with `x-text`."""

PATH_KEYS = frozenset(
    {
        "request.image",
        "request.video",
        "request.mask",
        "output.root",
        "output.name",
        "pipeline.model.source",
    }
)
"""Keys whose command-line value may hold anything a file name may; the schemas mark them with `x-path`."""


def is_text_key(key: str) -> bool:
    """True for the dotted keys whose value on the command line is literal text."""
    return key.rpartition(".")[2] in TEXT_NAMES and not key.startswith("sweep.")


def is_path_key(key: str) -> bool:
    return key in PATH_KEYS or (key.startswith("pipeline.components.") and key.endswith(".source"))


def quote(text: str) -> str:
    r"""Quote `text` for Hydra's override grammar so that exactly `text` arrives.

    Backslashes double only directly before a quote, before `${` or at the very end; `\Z` because `$` would also match
    before a last newline.
    """
    text = re.sub(r"(\\*)('|\Z)", lambda m: m[1] * 2 + ("\\'" if m[2] else ""), text)
    text = re.sub(r"(\\*)\$\{", lambda m: m[1] * 2 + "\\${", text)
    return f"'{text}'"


def read_text_value(value: str, key: str) -> str:
    """Return what a text key means on the command line: `@file` reads UTF-8 text, `@@x` is the text `@x`."""
    if value.startswith("@@"):
        return value[1:]
    if not value.startswith("@"):
        return value
    return read_file(value[1:], key).removesuffix("\n").removesuffix("\r")


def read_file(name: str, key: str) -> str:
    """Read the UTF-8 file an `@file` value names; raises `ConfigError` when it cannot be read."""
    where = f"from the command line: {key}=@{name}"
    try:
        with expand(name).open("rb") as file:
            content = file.read(MAX_TEXT_BYTES + 1)
        if len(content) > MAX_TEXT_BYTES:
            raise ConfigError.of(key, f"'{name}' holds more than {MAX_TEXT_BYTES} bytes of text", where)
        return content.decode("utf-8-sig").replace("\r\n", "\n")
    except UnicodeDecodeError as error:
        raise ConfigError.of(key, f"'{name}' is not UTF-8 text (byte {error.start})", where) from None
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        hint = f"write {key}=@@{name} for text that begins with @"
        raise ConfigError.of(key, f"cannot read '{name}': {reason}", where, hint) from None
