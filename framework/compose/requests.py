"""Builds the requests of a run from the pipeline's defaults, the run's values and a file of requests. No torch."""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import fields, replace
from typing import Any

from framework.compose.overrides import Override
from framework.compose.provenance import USER, Provenance
from framework.compose.schema import check_schema
from framework.compose.yaml_file import KeyPath, show_path
from framework.errors import ConfigError, Problem
from framework.paths import expand
from framework.spec import RequestSpec

TEXTS = ("prompt", "negative_prompt")
MAX_BYTES = 1 << 26
MAX_REQUESTS = 10_000
_IN_REQUEST = re.compile(r"requests\[(\d+)\]\.(.+)")
_FIELDS = frozenset(spec.name for spec in fields(RequestSpec))
_INTEGERS = frozenset(
    {"height", "width", "num_frames", "num_inference_steps", "max_sequence_length", "num_outputs", "fps"}
)


def put_requests(data: dict[str, Any], words: Sequence[Override], provenance: Provenance) -> None:
    """Read the file that `requests=@file` names, and note the line of each request."""
    for word in words:
        if word.kind == "requests":
            read = {} if word.value is None else read_requests(word.value)
            data["requests"] = list(read.values()) or None
            provenance.places |= {("requests", index): place for index, place in enumerate(read)}


def read_requests(file: str) -> dict[str, dict[str, Any]]:
    """Read a file with one JSON object a line: `file:line` -> request, in order.

    Raises `ConfigError` with every wrong line.
    """
    path = expand(file)
    shown = show_path(path.absolute())
    try:
        with path.open("rb") as opened:
            content = opened.read(MAX_BYTES + 1)
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError:
        raise ConfigError.of("requests", "the file is not UTF-8 text", shown) from None
    except (OSError, ValueError) as error:
        reason = f"cannot read '{file}': {getattr(error, 'strerror', None) or error}"
        raise ConfigError.of("requests", reason, f"from the command line: requests=@{file}") from None
    if len(content) > MAX_BYTES:
        raise ConfigError.of("requests", f"the file holds more than {MAX_BYTES} bytes", shown)
    requests: dict[str, dict[str, Any]] = {}
    problems: list[Problem] = []
    for number, line in enumerate(text.split("\n"), 1):
        if line.strip():
            try:
                requests[f"{shown}:{number}"] = _read_line(line, f"{shown}:{number}")
            except ConfigError as error:
                problems += error.problems
    if not requests and not problems:
        problems.append(Problem("requests", "the file holds no request", shown))
    if len(requests) > MAX_REQUESTS:
        problems.append(Problem("requests", f"more than {MAX_REQUESTS} requests", shown))
    if problems:
        raise ConfigError(problems)
    return requests


def _read_line(line: str, where: str) -> dict[str, Any]:
    try:
        value = json.loads(line, object_pairs_hook=_no_duplicates, parse_constant=_no_constant)
    except json.JSONDecodeError as error:
        raise ConfigError.of("", f"not valid JSON: {error.msg.lower()} (column {error.colno})", where) from None
    except (ValueError, RecursionError) as error:
        raise ConfigError.of("", f"not valid JSON: {error}", where) from None
    if not isinstance(value, dict):
        raise ConfigError.of("", "each line holds one JSON object", where)
    check_schema(value, "request", lambda path: where)
    return value


def _no_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    result: dict[str, Any] = {}
    for key, value in pairs:
        if key in result:
            raise ValueError(f"duplicate key '{key}'")
        result[key] = value
    return result


def _no_constant(text: str) -> None:
    raise ValueError(f"{text} is not a number")


def in_its_file(problem: Problem, places: Mapping[KeyPath, str]) -> Problem:
    """Name a key of a line of a file as it stands there, for the place already says which request it is."""
    match = _IN_REQUEST.fullmatch(problem.key)
    if match is None or places.get(("requests", int(match[1]))) != problem.where:
        return problem
    return replace(problem, key=match[2])


def build_requests(data: Mapping[str, Any], locate: Any) -> tuple[RequestSpec, ...]:
    """One `RequestSpec` for each entry of `requests`, or a single one.

    Raises `ConfigError` for a missing prompt, for seeds that do not fit the number of outputs, and for strengths that
    do not fit the run's adapters.
    """
    defaults = ((data.get("pipeline") or {}).get("defaults") or {}).get("request") or {}
    own = {**(data.get("request") or {}), **{name: data.get(name) for name in (*TEXTS, "seed")}}
    base = _over(defaults, own)
    lines: Sequence[Mapping[str, Any]] = data.get("requests") or [{}]
    num_loras = len(data.get("loras") or ())
    problems: list[Problem] = []
    requests = []
    for index, line in enumerate(lines):
        prefix: KeyPath = ("requests", index) if data.get("requests") else ()
        try:
            requests.append(_build(_over(base, line), prefix, locate, num_loras))
        except ConfigError as error:
            problems += error.problems
    if problems:
        raise ConfigError(dict.fromkeys(problems))
    return tuple(requests)


def beaten_by_lines(data: Mapping[str, Any], provenance: Provenance) -> Iterator[Problem]:
    """One line for each value of the user's beside a file of requests whose every line has its own."""
    lines = data.get("requests") or ()
    for key in (*TEXTS, "seed", *(f"request.{name}" for name in data.get("request") or ())):
        origin = provenance.origin(key)
        name = key.removeprefix("request.")
        if lines and origin is not None and origin.layer == USER and all(line.get(name) is not None for line in lines):
            yield Problem(key, "no effect: every line of requests has its own", origin.where)


def _over(below: Mapping[str, Any], above: Mapping[str, Any]) -> dict[str, Any]:
    return {**below, **{key: value for key, value in above.items() if value is not None}}


def _build(values: Mapping[str, Any], prefix: KeyPath, locate: Any, num_loras: int) -> RequestSpec:
    name = f"requests[{prefix[1]}]." if prefix else ""
    if values.get("prompt") is None:
        raise ConfigError.of(f"{name}prompt", "a prompt is required", locate(f"{name}prompt"), "set prompt=TEXT")
    seeds, num_outputs = _seeds(values, name, locate)
    sampling = dict(_typed(values))
    sampling.update(seeds=seeds, num_outputs=num_outputs, lora_scales=_scales(values, name, locate, num_loras))
    return RequestSpec(**sampling)


def _typed(values: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    for key, value in values.items():
        if key in _FIELDS and value is not None:
            number = int(value) if key in _INTEGERS else value
            yield key, float(number) if key in ("guidance_scale", "guidance_scale_2", "strength") else number


def _seeds(values: Mapping[str, Any], name: str, locate: Any) -> tuple[tuple[int, ...] | None, int]:
    """A list of seeds says the number of outputs; one seed counts up from output to output."""
    seed, count = values.get("seed"), values.get("num_outputs")
    if isinstance(seed, list):
        if count is not None and count != len(seed):
            reason = f"{len(seed)} seeds for {int(count)} outputs"
            raise ConfigError.of(f"{name}seed", reason, locate(f"{name}seed"), "give one seed for each output")
        return tuple(int(item) for item in seed), len(seed)
    num_outputs = int(count or 1)
    return (None if seed is None else tuple(int(seed) + index for index in range(num_outputs))), num_outputs


def _scales(values: Mapping[str, Any], name: str, locate: Any, num_loras: int) -> tuple[float, ...] | None:
    """One number is for every adapter of the run; a list says one for each, in the order of `loras`."""
    said, key = values.get("loras_scale"), f"{name}loras_scale"
    if said is None:
        return None
    if not num_loras:
        raise ConfigError.of(key, "the run has no adapters", locate(key), "set loras")
    if not isinstance(said, list):
        return (float(said),) * num_loras
    if len(said) != num_loras:
        reason = f"{len(said)} strengths for {num_loras} adapter{'s' if num_loras != 1 else ''}"
        raise ConfigError.of(key, reason, locate(key), "give one for each entry of loras")
    return tuple(float(item) for item in said)
