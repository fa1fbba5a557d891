"""LoRA files: what an adapter adds to which weight of which component. Imports torch, and diffusers when it converts.

Names of diffusers and peft, with or without a component in front, are read here; those of other trainers go through the
conversion of the pipeline class. Only safetensors are opened.
"""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from framework.errors import LoadError
from framework.loading.places import locate_adapter

FOREIGN = ("diffusion_model.", "lora_unet_", "lora_te", "double_blocks.", "single_blocks.", "lora_transformer_")
"""How the names of trainers begin that name modules in their own way."""

PARTS = {
    ".lora_A.weight": "down",
    ".lora_A.default.weight": "down",
    ".lora_down.weight": "down",
    ".lora.down.weight": "down",
    ".lora_B.weight": "up",
    ".lora_B.default.weight": "up",
    ".lora_up.weight": "up",
    ".lora.up.weight": "up",
    ".lora_B.bias": "bias",
    ".diff": "whole",
    ".diff_b": "bias",
    ".alpha": "alpha",
}
METADATA = "lora_adapter_metadata"  # where diffusers keeps peft's config


@dataclass(slots=True)
class Delta:
    """What one adapter adds to a module: `up @ down` times alpha / rank to its weight, and more where it has that."""

    down: Tensor | None = None  # (rank, in), or (rank, in, height, width) for a convolution
    up: Tensor | None = None  # (out, rank)
    whole: Tensor | None = None  # of the weight's own shape
    bias: Tensor | None = None
    alpha: float | None = None

    def factor(self) -> float:
        assert self.down is not None
        rank = self.down.shape[0]
        return 1.0 if self.alpha is None else self.alpha / rank


@dataclass(frozen=True, slots=True)
class AdapterFile:
    """The deltas of one file by component ("" where the file names none) and module."""

    path: Path
    deltas: Mapping[str, Mapping[str, Delta]] = field(default_factory=dict)


def read_adapter(path: Path, components: Iterable[str], pipeline_class: Any = None) -> AdapterFile:
    """Read `path`, a file or a place on the hub; `components` are the names that may stand in front of a module's.

    Raises `LoadError` naming the file and the first entry that is no LoRA weight known here, or has no partner.
    """
    path = locate_adapter(path)
    tensors, metadata = _open(path)
    if any(name.startswith(FOREIGN) for name in tensors):
        tensors = _converted(path, pipeline_class)
    names = sorted(components, key=len, reverse=True)
    deltas: dict[str, dict[str, Delta]] = {}
    for name, tensor in tensors.items():
        module, part = _split(path, name)
        component, module = _component(module, names)
        delta = deltas.setdefault(component, {}).setdefault(module, Delta())
        setattr(delta, part, float(tensor) if part == "alpha" else tensor)
    for component, modules in deltas.items():
        for module, delta in modules.items():
            if (delta.down is None) != (delta.up is None):
                raise LoadError(f"{path}: '{module}' has one half of a LoRA pair only")
            if delta.alpha is None and delta.down is not None:
                delta.alpha = _stored_alpha(metadata, component, module)
    return AdapterFile(path, deltas)


def _open(path: Path) -> tuple[dict[str, Tensor], Mapping[str, str]]:
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(path, framework="pt") as file:
            return {name: file.get_tensor(name) for name in file.keys()}, file.metadata() or {}  # noqa: SIM118
    except (OSError, SafetensorError) as error:
        raise LoadError(f"{path}: not a safetensors file: {error}") from error


def _converted(path: Path, pipeline_class: Any) -> dict[str, Tensor]:
    convert = getattr(pipeline_class, "lora_state_dict", None)
    if convert is None:
        name = getattr(pipeline_class, "__name__", "this pipeline")
        raise LoadError(f"{path}: its names are another trainer's, and {name} of diffusers converts none")
    try:
        found = convert(str(path), local_files_only=True, use_safetensors=True)
    except (ValueError, KeyError, RuntimeError, ImportError) as error:
        raise LoadError(f"{path}: diffusers cannot convert it: {str(error).splitlines()[0]}") from error
    weights, alphas = found if isinstance(found, tuple) else (found, None)
    return {**weights, **{name: torch.tensor(value) for name, value in (alphas or {}).items()}}


def _split(path: Path, name: str) -> tuple[str, str]:
    """The module and the part that an entry is of."""
    for ending, part in PARTS.items():
        if name.endswith(ending):
            return name.removesuffix(ending), part
    raise LoadError(f"{path}: '{name}' is no LoRA weight known here; DoRA, LoHa and LoKr are not merged")


def _component(module: str, names: Iterable[str]) -> tuple[str, str]:
    module = module.removeprefix("base_model.model.")
    for name in names:
        if module.startswith(f"{name}."):
            return name, module.removeprefix(f"{name}.")
    return "", module


def _stored_alpha(metadata: Mapping[str, str], component: str, module: str) -> float | None:
    """peft's alpha from the file's metadata: a pattern for the module, else the one for all."""
    stored = json.loads(metadata.get(METADATA, "{}"))
    prefix = f"{component}." if component else ""
    patterns = stored.get(f"{prefix}alpha_pattern") or {}
    chosen = next((value for pattern, value in patterns.items() if module.endswith(pattern)), None)
    alpha = stored.get(f"{prefix}lora_alpha") if chosen is None else chosen
    return None if alpha is None else float(alpha)
