"""Checks plain config data against the JSON Schemas of `conf/schema`. Imports jsonschema on use, no torch."""

import json
import math
import re
from collections.abc import Callable, Iterator, Mapping
from functools import cache
from typing import Any

from framework.compose.sentences import in_file_order, problems_of
from framework.compose.text import TEXT_NAMES
from framework.compose.yaml_file import KeyPath, dotted
from framework.errors import ConfigError, Problem
from framework.paths import SCHEMAS

Schema = Mapping[str, Any]
Where = Callable[[KeyPath], str]

COMPOSED = "composed"  # the name of `composed_schema` for `check_schema`
_HALF = re.compile("[\ud800-\udfff]")  # of a surrogate pair, which JSON can write and no tokenizer takes
_FALSE_TEXTS = frozenset({"false", "no", "off", "0"})
_TRUE_TEXTS = frozenset({"true", "yes", "on", "1"})


@cache
def load_schema(name: str) -> dict[str, Any]:
    """Return one schema of `conf/schema` by its short name, such as `pipeline`."""
    schema = json.loads((SCHEMAS / f"{name}.json").read_text(encoding="utf-8"))
    assert isinstance(schema, dict)
    return schema


@cache
def inline_schema(name: str) -> dict[str, Any]:
    """The same with the references to other files of ours put in place."""
    inlined = _inline(load_schema(name))
    assert isinstance(inlined, dict)
    return inlined


@cache
def composed_schema() -> dict[str, Any]:
    """The schema of a whole composed config: that of the files without Hydra's defaults lists."""
    schema = _without_lists(inline_schema("config"))
    assert isinstance(schema, dict)
    return schema


def _without_lists(value: Any) -> Any:
    if isinstance(value, list):
        return [_without_lists(item) for item in value]
    if not isinstance(value, dict):
        return value
    properties = value.get("properties")
    if isinstance(properties, dict) and isinstance(properties.get("defaults"), dict):
        own = [branch for branch in properties["defaults"].get("oneOf", []) if "properties" in branch]
        rest = {name: inner for name, inner in properties.items() if name != "defaults"}
        value = {**value, "properties": {**rest, **({"defaults": own[0]} if own else {})}}
    return {key: _without_lists(inner) for key, inner in value.items()}


def _inline(value: Any) -> Any:
    if isinstance(value, list):
        return [_inline(item) for item in value]
    if not isinstance(value, dict):
        return value
    if isinstance(value.get("$ref"), str):
        return {**inline_schema(value["$ref"].removesuffix(".json")), **{k: v for k, v in value.items() if k != "$ref"}}
    return {key: _inline(inner) for key, inner in value.items() if key not in ("$schema", "$id")}


@cache
def _validator(name: str) -> Any:
    from jsonschema import Draft202012Validator

    return Draft202012Validator(composed_schema() if name == COMPOSED else inline_schema(name))


def check_schema(data: Any, name: str, where: Where) -> None:
    """Raise `ConfigError` with every place where `data` does not fit the schema `name`, in the order of the files."""
    errors = sorted(_validator(name).iter_errors(data), key=lambda error: [str(part) for part in error.absolute_path])
    found = [problem for error in errors for problem in problems_of(error)]
    found += _unusable(data, ())
    problems = [_placed(problem, where) for problem in found]
    if problems:
        raise ConfigError(in_file_order(dict.fromkeys(problems)))


def _placed(problem: Problem, where: Where) -> Problem:
    from framework.compose.provenance import split_key

    return Problem(problem.key, problem.reason, where(split_key(problem.key)), problem.hint)


def _unusable(value: Any, path: KeyPath) -> Iterator[Problem]:
    """Numbers that are none, and prompts that no tokenizer takes."""
    if isinstance(value, str) and path and path[-1] in TEXT_NAMES and (half := _HALF.search(value)):
        reason = f"holds half of a character at position {half.start() + 1}, which is no text"
        yield Problem(dotted(path), reason, hint="write it as UTF-8")
    if isinstance(value, float) and not math.isfinite(value):
        yield Problem(dotted(path), f"must be a finite number, got {value}")
    items = value.items() if isinstance(value, Mapping) else enumerate(value) if isinstance(value, list) else ()
    for key, inner in items:
        yield from _unusable(inner, (*path, key))


def fold_spellings(data: Any, schema: Schema) -> Any:
    """Return `data` with the spellings of one value made one: text booleans, and `off`, `no`, `false` where off is
    a value."""
    if isinstance(data, dict):
        known, open_part = schema.get("properties", {}), schema.get("additionalProperties")
        rest = open_part if isinstance(open_part, dict) else {}
        return {key: fold_spellings(value, known.get(key, rest)) for key, value in data.items()}
    if isinstance(data, list):
        items = schema.get("items")
        return [fold_spellings(value, items if isinstance(items, dict) else {}) for value in data]
    return _fold_scalar(data, schema)


def takes_numbers_only(schema: Schema) -> bool:
    """Whether a key takes numbers (or lists of them) and no text."""
    kinds = {kind for branch in branches_of(schema) for kind in _kinds_of(branch)}
    return bool(kinds & {"integer", "number"}) and "string" not in kinds


def branches_of(schema: Schema) -> list[Schema]:
    """The schema itself and what it leaves the choice between."""
    return [schema, *schema.get("oneOf", []), *schema.get("anyOf", [])]


def _kinds_of(schema: Schema) -> list[str]:
    kinds = schema.get("type", [])
    return [kinds] if isinstance(kinds, str) else list(kinds)


def _fold_scalar(value: Any, schema: Schema) -> Any:
    folded = value.strip().lower() if isinstance(value, str) else value
    if schema.get("x-off") and (folded is False or (isinstance(folded, str) and folded in _FALSE_TEXTS)):
        return "off"
    kinds = schema.get("type", [])
    takes_bool = kinds == ["boolean", "null"] or any(choice is True for choice in schema.get("enum", []))
    if takes_bool and isinstance(folded, str) and folded in _FALSE_TEXTS | _TRUE_TEXTS:
        return folded in _TRUE_TEXTS
    return value
