"""The adapters of a run: files that must be there, or places on the hub, in the one format that is read. No torch."""

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from framework.errors import ConfigError, Problem, did_you_mean
from framework.loading.source import parse_hub_path
from framework.paths import expand
from framework.spec import LoraSpec

SUFFIX = ".safetensors"
PICKLES = (".bin", ".pt", ".pth", ".ckpt", ".pkl")


def build_loras(data: Mapping[str, Any], locate: Callable[[str], str]) -> tuple[LoraSpec, ...]:
    """Return the adapters of `loras`. Raises `ConfigError` for what is no safetensors file or component."""
    found: list[LoraSpec] = []
    problems: list[Problem] = []
    for index, entry in enumerate(data.get("loras") or ()):
        problems += _unknown(index, entry, data["pipeline"]["components"], locate)
        source = entry["source"]
        path, reason, hint = _file(source)
        if path is None:
            key = f"loras[{index}].source"
            problems.append(Problem(key, reason, locate(key), hint))
            continue
        scale = entry.get("scale")
        found.append(LoraSpec(path, 1.0 if scale is None else float(scale), tuple(entry.get("components") or ())))
    if problems:
        raise ConfigError(problems)
    return tuple(found)


def _unknown(
    index: int, entry: Mapping[str, Any], known: Mapping[str, Any], locate: Callable[[str], str]
) -> Iterator[Problem]:
    for name in entry.get("components") or ():
        if name not in known:
            key = f"loras[{index}].components"
            yield Problem(key, f"the pipeline has no component '{name}'", locate(key), did_you_mean(name, known))


def _file(source: str) -> tuple[Path | None, str, str]:
    """The file, or why there is none and what would work."""
    path = expand(source)
    if path.suffix in PICKLES:
        hint = "load it with torch.load(..., weights_only=True), write it with safetensors.torch.save_file"
        return None, f"'{source}' is a pickle, which is not read; convert it to safetensors", hint
    if path.is_dir():
        inside = sorted(path.glob(f"*{SUFFIX}"))
        if len(inside) == 1:
            return inside[0], "", ""
        names = ", ".join(file.name for file in inside) or "none"
        return None, f"the folder '{source}' must hold one {SUFFIX} file, and holds {names}", "name the file"
    hub = None if path.is_file() else parse_hub_path(source)
    if hub is not None and (hub.is_file or not Path(hub.path).suffix):
        return Path(source), "", ""  # fetched or found in the hub's cache when the run starts
    if not path.is_file():
        return None, f"the file '{source}' does not exist", "give a local .safetensors file, or OWNER/NAME of the hub"
    if path.suffix != SUFFIX:
        return None, f"'{source}' is no {SUFFIX} file", "adapters are read from safetensors only"
    return path, "", ""
