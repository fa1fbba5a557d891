"""`numerics`: what may change the picture, read and checked, and one line for each that does. No torch."""

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from framework.attention_backends import attention_problems, find_backend, is_default
from framework.compilers import compile_problems
from framework.errors import Problem
from framework.quantization import Quantization
from framework.spec import NumericsSpec
from framework.step_caches import read_step_cache

CHANGES = "changes the picture"
SAID = {
    "vae_tiling": f"the VAE works in tiles and blends them, in less memory: {CHANGES}",
    "vae_slicing": "the VAE works on one output at a time, in less memory: may change the picture by rounding",
    "deterministic": f"only kernels that always compute in the same order, some slower: {CHANGES}",
}
COMPILED = f"blocks are compiled, which rounds otherwise: {CHANGES}"


def build_numerics(data: Mapping[str, Any], quantize: Mapping[str, Quantization]) -> NumericsSpec:
    """Build it from a checked mapping; what is null is as if not said."""
    said = {key: value for key, value in data.items() if value is not None}
    said["step_cache"], _ = read_step_cache(said.get("step_cache"))
    return NumericsSpec(**{**said, "quantize": quantize})


def numerics_problems(data: Mapping[str, Any], locate: Callable[[str], str]) -> Iterator[Problem]:
    """Yield what no run could have: unknown names and options, and what the named device cannot do."""
    numerics = data.get("numerics") or {}
    kind = str(data.get("device") or "auto").partition(":")[0]
    trusted = bool(((data.get("pipeline") or {}).get("model") or {}).get("trust_remote_code"))
    device = None if kind == "auto" else kind
    found = read_step_cache(numerics.get("step_cache"))[1]
    found += compile_problems(numerics.get("compile") or "off", device, machine=False)
    if numerics.get("attention") is not None:
        found += attention_problems(numerics["attention"], device, trusted=trusted, packages=False)
    for problem in found:
        yield Problem(problem.key, problem.reason, _nearest(problem.key, locate), problem.hint)


def numerics_notes(numerics: NumericsSpec) -> list[str]:
    """One line for everything that is on and may change the picture; quantised components have their own."""
    lines = {name: line for name, line in SAID.items() if getattr(numerics, name) is True}
    backend = find_backend(numerics.attention)
    if backend is not None and not is_default(numerics.attention):
        fewer = ", which computes in fewer bits" if backend.lossy else ""
        lines["attention"] = f"{backend.name} ({backend.what}){fewer}: {CHANGES}"
    if numerics.compile != "off":
        lines["compile"] = COMPILED
    if numerics.step_cache is not None:
        lines["step_cache"] = f"{numerics.step_cache} {numerics.step_cache.cache.what}: lossy, {CHANGES}"
    return [f"numerics.{name}: {line}" for name, line in lines.items()]


def numerics_line(numerics: NumericsSpec) -> str:
    """Everything in one line for `explain`; `auto` is off until the planner decides."""
    auto = "auto (off)"
    parts = {
        "vae_tiling": auto if numerics.vae_tiling == "auto" else _text(numerics.vae_tiling),
        "vae_slicing": auto if numerics.vae_slicing == "auto" else _text(numerics.vae_slicing),
        "attention": numerics.attention,
        "compile": numerics.compile,
        "step_cache": str(numerics.step_cache or "off"),
        "deterministic": _text(numerics.deterministic),
    }
    return "numerics: " + ", ".join(f"{name} {value}" for name, value in parts.items())


def _text(value: str | bool) -> str:
    return {True: "on", False: "off"}.get(value, str(value)) if isinstance(value, bool) else value


def _nearest(key: str, locate: Callable[[str], str]) -> str:
    """Where a key stands; an option in a map that was said as a whole stands where the map does."""
    while key:
        where = locate(key)
        if where:
            return where
        key = key.rpartition(".")[0]
    return ""
