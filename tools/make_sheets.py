"""Writes the sheets of `conf/models` from `tools/sheet_configs.yaml`, building every component on the meta device.

    python tools/make_sheets.py            # all of them
    python tools/make_sheets.py FLUX.1     # those whose name contains it

Imports torch, diffusers and transformers; takes about a minute. Nothing is downloaded.
"""

import importlib
import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
import yaml

from framework.planning.sheets import Part, Sheet, sheet_json, sheet_path
from framework.planning.tensors import Tensor

CONFIGS = Path(__file__).with_name("sheet_configs.yaml")


def main(wanted: str = "") -> None:
    known = yaml.safe_load(CONFIGS.read_text(encoding="utf-8"))
    for repo, entry in known["repos"].items():
        if wanted in repo:
            path = sheet_path(repo)
            path.write_text(render(make_sheet(repo, entry, known["parts"])), encoding="utf-8")
            print(f"{path.name}: {path.stat().st_size / 1000:.1f} kB")


def make_sheet(repo: str, entry: Mapping[str, Any], parts: Mapping[str, Any]) -> Sheet:
    return Sheet(
        repo=repo,
        pipeline_class=entry["pipeline_class"],
        options=entry.get("options", {}),
        variants=entry.get("variants", {}),
        parts={name: make_part(resolve(part, parts)) for name, part in entry["components"].items()},
    )


def resolve(entry: Mapping[str, Any], parts: Mapping[str, Any]) -> dict[str, Any]:
    """A component's entry over the shared part it names; its config is laid over the part's."""
    base = parts[entry["part"]] if "part" in entry else {}
    return {**base, **entry, "config": {**base.get("config", {}), **entry.get("config", {})}}


def make_part(entry: Mapping[str, Any]) -> Part:
    library, name = entry["class"]
    module_name = library if library in ("diffusers", "transformers") else f"diffusers.pipelines.{library}"
    cls = getattr(importlib.import_module(module_name), name)
    if not issubclass(cls, torch.nn.Module):
        return Part(class_name=(library, name), config=entry["config"], source=entry["source"])
    module, config = build(cls, dict(entry["config"]))
    return Part(
        class_name=(library, name),
        config=config,
        source=entry["source"],
        dtype=entry["dtype"],
        tensors=tuple(stored_tensors(module, entry["dtype"])),
    )


def build(cls: Any, config: dict[str, Any]) -> tuple[torch.nn.Module, dict[str, Any]]:
    """Return the module on the meta device and its config, complete for diffusers' classes."""
    with torch.device("meta"):
        if hasattr(cls, "load_config"):
            module = cls.from_config(config)
            return module, plain({key: value for key, value in module.config.items() if not key.startswith("_")})
        return cls(cls.config_class(**config)), plain(config)


def stored_tensors(module: torch.nn.Module, dtype: str) -> list[Tensor]:
    """What a file of the module holds, in module order: tied weights once, floating ones in `dtype`."""
    found, seen = [], set()
    for name, tensor in module.state_dict(keep_vars=True).items():
        if id(tensor) not in seen:
            seen.add(id(tensor))
            own = dtype if tensor.is_floating_point() else str(tensor.dtype).removeprefix("torch.")
            found.append(Tensor(name, tuple(tensor.shape), own))
    return found


def plain(value: Any) -> Any:
    """Tuples as lists, as JSON has them."""
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items()}
    return [plain(item) for item in value] if isinstance(value, list | tuple) else value


def render(sheet: Sheet) -> str:
    """JSON with one line for each tensor and each component's config, so that a change is a small difference."""
    content = sheet_json(sheet)
    components = content.pop("components")
    head = json.dumps(content, indent=1)[:-2]
    shown = ",\n".join(f"  {json.dumps(name)}: {_component(entry)}" for name, entry in components.items())
    return f'{head},\n "components": {{\n{shown}\n }}\n}}\n'


def _component(entry: Mapping[str, Any]) -> str:
    lines = [f"   {json.dumps(key)}: {json.dumps(value)}" for key, value in entry.items() if key != "tensors"]
    if "tensors" in entry:
        tensors = ",\n".join(f"    {json.dumps(name)}: {json.dumps(text)}" for name, text in entry["tensors"].items())
        lines.append(f'   "tensors": {{\n{tensors}\n   }}')
    return "{\n" + ",\n".join(lines) + "\n  }"


if __name__ == "__main__":
    main(*sys.argv[1:])
