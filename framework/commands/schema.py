"""`schema`: the JSON Schemas of the config, or the reference of all keys made from them. No torch, no Hydra."""

import json
from collections.abc import Iterator
from typing import Any

from framework.compose.arguments import COMMON, Flags
from framework.compose.schema import inline_schema, load_schema
from framework.errors import ConfigError, did_you_mean
from framework.paths import SCHEMAS

SUMMARY = "Print a JSON Schema of the config, or the key reference as Markdown."
EXAMPLES = ("framework schema", "framework schema pipeline", "framework schema --markdown")
USAGE = "[NAME] [FLAGS]"
ACCEPTED = COMMON | {"markdown"}


def main(words: list[str], flags: Flags) -> int:
    """Print the whole schema, or that of one group; `--markdown` prints docs/keys.md."""
    names = sorted(path.stem for path in SCHEMAS.glob("*.json"))
    if len(words) > 1:
        raise ConfigError.of("", "expected one schema name", hint=f"choose from {', '.join(names)}")
    name = words[0] if words else "config"
    if name not in names:
        raise ConfigError.of("", f"there is no schema '{name}'", hint=did_you_mean(name, names))
    if flags.markdown:
        print(markdown(name), end="")
    else:
        schema = inline_schema(name) if name == "config" else load_schema(name)
        print(json.dumps(schema, indent=2, ensure_ascii=False))
    return 0


def markdown(name: str = "config") -> str:
    """The reference of every key of a schema as one Markdown table."""
    rows = [f"| `{key}` | {kind} | {text} |" for key, kind, text in _rows(inline_schema(name), "")]
    return "\n".join(
        (
            "# Keys",
            "",
            "<!-- written by `framework schema --markdown`; edit conf/schema/*.json instead -->",
            "",
            "`null` means not said. NAME stands for any name. Everything that is not listed is refused.",
            "",
            "| key | value | meaning |",
            "|---|---|---|",
            *rows,
            "",
        )
    )


def _rows(schema: dict[str, Any], prefix: str) -> Iterator[tuple[str, str, str]]:
    for name, inner in schema.get("properties", {}).items():
        if name == "defaults" and inner.get("type") == ["array", "null"]:
            continue
        yield from _key(inner, f"{prefix}.{name}" if prefix else name)


def _key(schema: dict[str, Any], key: str) -> Iterator[tuple[str, str, str]]:
    text = str(schema.get("description", "")).replace("|", "\\|")
    yield key, _kind(schema), text
    for branch in (schema, *schema.get("oneOf", [])):
        yield from _rows(branch, key)
        rest = branch.get("additionalProperties")
        if isinstance(rest, dict) and ("description" in rest or "properties" in rest):
            yield from _key(rest, f"{key}.NAME")
        items = branch.get("items")
        if isinstance(items, dict) and "properties" in items:
            yield from _rows(items, f"{key}[]")


def _kind(schema: dict[str, Any]) -> str:
    if "enum" in schema:
        return ", ".join(f"`{_show(value)}`" for value in schema["enum"] if value is not None)
    types: list[str] = []
    for branch in (schema, *schema.get("oneOf", [])):
        kind = branch.get("type", [])
        types += [kind] if isinstance(kind, str) else kind
    words = {"object": "map", "array": "list", "string": "text", "boolean": "true, false", "null": ""}
    return " or ".join(dict.fromkeys(word for word in (words.get(name, name) for name in types) if word))


def _show(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value)
