"""From what Python says of a run to its spec: words of the command line, or a spec, with values on top. No torch."""

from collections.abc import Mapping, Sequence
from numbers import Integral, Real
from os import PathLike, fspath
from typing import Any, TypedDict

from framework.compose.composer import Composed, check, compose_data, compose_saved_data
from framework.compose.overrides import listed_words
from framework.compose.provenance import USER
from framework.errors import Origin
from framework.spec import RunSpec

Config = RunSpec | Sequence[str]
"""A spec, or the words that `framework run` takes, such as `["pipeline=wan2", "residency=low_vram"]`."""
TOP = ("prompt", "negative_prompt", "seed")
FROM_PYTHON = Origin(USER, "from Python")


class RequestValues(TypedDict, total=False):
    """What a request may say, as Python values. Texts are literal: `@` and `${` mean nothing here."""

    prompt: str
    negative_prompt: str
    seed: int | list[int]
    height: int
    width: int
    num_frames: int
    num_inference_steps: int
    guidance_scale: float
    guidance_scale_2: float
    max_sequence_length: int
    num_outputs: int
    fps: int
    image: "str | PathLike[str]"
    video: "str | PathLike[str]"
    mask: "str | PathLike[str]"
    strength: float


def spec_of(config: Config, words: Sequence[str] = (), values: RequestValues | None = None) -> RunSpec:
    """Return the spec of `config` with `words` and `values` on top. Raises `ConfigError` with every problem found."""
    if isinstance(config, RunSpec):
        if not words and not values:
            return config
        composed = compose_saved_data(config.config, words, config.provenance, own=True)
    else:
        composed = compose_data([*listed_words(config), *words])
    for key, value in (values or {}).items():
        _put(composed, (key,) if key in TOP else ("request", key), value)
    return check(composed)


def _plain(value: Any) -> Any:
    """A path of the file system becomes its text, and a number of another library, such as NumPy, one of Python."""
    if isinstance(value, PathLike):
        return fspath(value)
    if isinstance(value, list | tuple):
        return [_plain(one) for one in value]
    if isinstance(value, bool):
        return value
    return int(value) if isinstance(value, Integral) else float(value) if isinstance(value, Real) else value


def _put(composed: Composed, path: tuple[str, ...], value: Any) -> None:
    """Say one value, as plain data."""
    plain = _plain(value)
    place: dict[str, Any] = composed.data
    for part in path[:-1]:
        inner = place.get(part)
        place[part] = dict(inner) if isinstance(inner, Mapping) else {}
        place = place[part]
    place[path[-1]] = plain
    composed.provenance.put(path, plain, FROM_PYTHON)
