"""What the schema's keywords say to people: one sentence each, with the nearest valid name. No torch."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from framework.compose.yaml_file import KeyPath, dotted
from framework.errors import Problem, did_you_mean
from framework.registry import MODES

_TYPES = {
    "integer": "a whole number",
    "number": "a number",
    "string": "text",
    "boolean": "true or false",
    "array": "a list",
    "object": "a map of keys",
}


def problems_of(error: Any) -> Iterator[Problem]:
    """Yield our lines for one error of the validator; `where` is left empty."""
    path: KeyPath = tuple(error.absolute_path)
    key, value, schema = dotted(path), error.instance, error.schema
    if "propertyNames" in error.schema_path:
        yield Problem(dotted((*path, str(value))), "a name holds letters, digits and `_` only, a letter first")
        return
    match error.validator:
        case "additionalProperties":
            yield from _unknown_keys(path, value, schema)
        case "required":
            for name in error.validator_value:
                if name not in value:
                    yield Problem(key, f"the key '{name}' is required")
        case "type":
            yield _wrong_type(key, value, schema, error.validator_value)
        case "enum":
            yield _not_one_of(key, value, error.validator_value)
        case "oneOf" | "anyOf":
            yield from _no_branch(error, key, value)
        case "minimum":
            yield Problem(key, f"must be at least {error.validator_value}, got {show(value)}")
        case "exclusiveMinimum":
            yield Problem(key, f"must be above {error.validator_value}, got {show(value)}")
        case "maximum":
            yield Problem(key, f"must be at most {error.validator_value}, got {show(value)}")
        case "pattern":
            yield Problem(key, f"{show(value)} does not fit", hint=schema.get("x-hint", ""))
        case "minItems":
            yield Problem(key, "the list is empty")
        case _:
            yield Problem(key, error.message.splitlines()[0])


def in_file_order(problems: Iterable[Problem]) -> list[Problem]:
    """Sort problems by file and line; those without a line keep their order at the end of their place."""
    return sorted(problems, key=_place)


def _place(problem: Problem) -> tuple[str, int]:
    file, _, line = problem.where.rpartition(":")
    return (file, int(line)) if line.isdigit() else (problem.where, 0)


def show(value: Any) -> str:
    """A value in a message: short, one line, strings in quotes."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, (dict, list)):
        return "a map of keys" if isinstance(value, dict) else "a list"
    text = "nothing" if value is None else f"'{value}'" if isinstance(value, str) else str(value)
    text = text.replace("\n", "\\n").replace("\r", "\\r")
    return text if len(text) <= 80 else f"{text[:76]}...'"


def _unknown_keys(path: KeyPath, value: Mapping[str, Any], schema: Mapping[str, Any]) -> Iterator[Problem]:
    known = schema.get("properties", {})
    for name in value:
        if name not in known:
            choices = [key for key in known if key != "defaults"]
            outer, dot, inner = str(name).partition(".")
            nested = f"in a file, write {inner} below {outer}" if dot and outer in choices else ""
            hint = nested or _request_key(str(name), known) or did_you_mean(str(name), choices)
            yield Problem(dotted((*path, name)), f"unknown key '{name}'", hint=hint)


def _request_key(name: str, known: Mapping[str, Any]) -> str:
    """The hint for a key of the request that stands at the top, unless a key of the top is meant."""
    below = known.get("request", {}).get("properties", {})
    if name in below:
        return f"did you mean 'request.{name}'?"
    near = did_you_mean(name, below)
    if not near.startswith("did you mean '") or did_you_mean(name, known).startswith("did you mean '"):
        return ""
    return near.replace("'", "'request.", 1)


def _wrong_type(key: str, value: Any, schema: Mapping[str, Any], types: Any) -> Problem:
    names = [types] if isinstance(types, str) else list(types)
    if schema.get("x-mode"):
        hint = "YAML reads a bare off, no or false as false" if value is False else ""
        return Problem(key, f"expected a mode, one of {', '.join(MODES)}; got {show(value)}", hint=hint)
    expected = " or ".join(_TYPES[name] for name in names if name != "null")
    hint = schema.get("x-hint", "")
    if "string" in names and "number" not in names and not isinstance(value, (dict, list)):
        hint = "put it in quotes"
    return Problem(key, f"expected {expected}, got {_kind(value)}", hint=hint)


def _kind(value: Any) -> str:
    if isinstance(value, str):
        return f"text {show(value)}"
    return show(value) if not isinstance(value, (int, float)) or isinstance(value, bool) else f"the number {value}"


def _not_one_of(key: str, value: Any, choices: Sequence[Any]) -> Problem:
    names = [show(choice).strip("'") for choice in choices if choice is not None]
    hint = did_you_mean(value, names) if isinstance(value, str) else ""
    listed = ", ".join(names)
    return Problem(key, f"{show(value)} is not one of {listed}", hint="" if hint.startswith("choose") else hint)


def _no_branch(error: Any, key: str, value: Any) -> Iterator[Problem]:
    """Explain the branch that the value's type chose; with none, name the types of all."""
    by_branch: dict[int, list[Any]] = {}
    for inner in error.context:
        by_branch.setdefault(inner.schema_path[0], []).append(inner)
    for errors in by_branch.values():
        if not any(inner.validator == "type" and not inner.path for inner in errors):
            for inner in errors:
                yield from problems_of(inner)
            return
    types: list[str] = []
    for branch in error.validator_value:
        kind = branch.get("type", [])
        types += [kind] if isinstance(kind, str) else kind
    expected = " or ".join(dict.fromkeys(_TYPES[name] for name in types if name != "null"))
    yield Problem(key, f"expected {expected}, got {_kind(value)}")
