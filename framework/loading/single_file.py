"""A component whose weights are one file beside the config of another folder. Imports torch and diffusers inside.

Files with the names of diffusers or transformers are read as they are; those of other programs go through the
conversion of diffusers' `from_single_file`, where the class has one. GGUF files always go that way.
"""

import os
import shutil
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from torch import nn

from framework.errors import LoadError
from framework.loading.headers import tensor_names
from framework.loading.source import GGUF

CONFIG_FILE = "config.json"
SCALED = (".scale_weight", ".weight_scale", ".scale_input", ".input_scale", "scaled_fp8")
"""How names of files end that keep 8-bit weights with scales, which nothing here reads."""


def load_single_file(name: str, cls: Any, folder: Path, file: Path, shell: nn.Module, **options: Any) -> Any:
    """Load component `name` of class `cls` from `file` with the config of `folder`.

    `shell` is the module on the meta device; `options` go to the library. Raises `LoadError` for names that fit
    neither the class nor a conversion, and for weights that the file lacks.
    """
    if file.suffix == GGUF:
        return _converted(name, cls, folder, file, options)
    names = tensor_names(file)
    if scaled := [found for found in names if found.endswith(SCALED)]:
        raise LoadError(
            f"component '{name}': '{file}' keeps scaled 8-bit weights ('{scaled[0]}'), which are not read; "
            f"use the full weights with numerics.quantize"
        )
    expected = set(shell.state_dict())
    if not set(names) <= expected:
        return _converted(name, cls, folder, file, options)
    tied = {key for group in _ties(shell) for key in group}
    if lacking := sorted(expected - set(names) - tied):
        raise LoadError(f"component '{name}': '{file}' lacks the weight '{lacking[0]}'")
    with tempfile.TemporaryDirectory() as made:
        beside = Path(made)
        shutil.copy(folder / CONFIG_FILE, beside / CONFIG_FILE)
        stem = "diffusion_pytorch_model" if cls.__module__.startswith("diffusers.") else "model"
        os.symlink(file.resolve(), beside / f"{stem}{file.suffix}")
        return cls.from_pretrained(str(beside), local_files_only=True, use_safetensors=True, **options)


def _converted(name: str, cls: Any, folder: Path, file: Path, options: dict[str, Any]) -> Any:
    if not hasattr(cls, "from_single_file"):
        raise LoadError(
            f"component '{name}': '{file}' has not the names of {cls.__name__}, and diffusers converts no single "
            f"file for that class"
        )
    loaded = cls.from_single_file(str(file), config=str(folder), local_files_only=True, **options)
    lacking = sorted(key for key, weight in loaded.named_parameters() if weight.device.type == "meta")
    if lacking:
        raise LoadError(f"component '{name}': '{file}' lacks the weight '{lacking[0]}'")
    return loaded


def _ties(shell: nn.Module) -> Sequence[Sequence[str]]:
    """Names of one parameter each: a file needs only one of them."""
    groups: dict[int, list[str]] = {}
    for key, parameter in shell.named_parameters(remove_duplicate=False):
        groups.setdefault(id(parameter), []).append(key)
    return [group for group in groups.values() if len(group) > 1]
