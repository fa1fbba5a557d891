"""One component from its folder: class, dtype, weights. Imports torch, and diffusers or transformers when called."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import nn

from framework.errors import ConfigError, LoadError
from framework.loading.classes import component_class
from framework.loading.headers import own_dtype, pickle_files, weight_bytes, weight_files
from framework.loading.index import ModelIndex
from framework.loading.source import is_hub_name, locate_model
from framework.spec import ComponentSpec, ModelSpec

PICKLE_KEY = "pipeline.model.allow_pickle"


@dataclass(frozen=True, slots=True)
class Part:
    """A component before it is loaded: its class, its own folder and, for a module, its weight files."""

    name: str
    cls: Any
    folder: Path
    files: tuple[Path, ...] = ()
    dtype: str | None = None

    @property
    def is_module(self) -> bool:
        return issubclass(self.cls, nn.Module)

    @property
    def run_bytes(self) -> int:
        """Bytes of the weights in the run's dtype, as the headers tell; a pickle's are its size on disk."""
        if any(file.suffix != ".safetensors" for file in self.files):
            return sum(file.stat().st_size for file in self.files)
        return weight_bytes(self.files, self.dtype)


def find_part(index: ModelIndex, model: ModelSpec, component: ComponentSpec, with_weights: bool = True) -> Part:
    """Resolve class, folder, files and dtype of `component` without reading a weight.

    The dtype is the component's, else the model's, else the one most bytes of the checkpoint have. Without weights only
    the config has to be there. Raises `LoadError` naming component and folder where something is missing or refused.
    """
    wanted = index.components.get(component.name)
    if wanted is None:
        raise LoadError(f"{index.folder}: the checkpoint has no component '{component.name}'")
    cls = component_class(index, component.name, wanted, model.trust_remote_code)
    folder = _component_folder(index, model, component)
    if not folder.is_dir():
        hint = f"; complete it with `hf download {model.source}`" if is_hub_name(model.source) else ""
        raise LoadError(f"component '{component.name}': the folder '{folder}' does not exist{hint}")
    if not with_weights or not issubclass(cls, nn.Module):
        return Part(component.name, cls, folder)
    files = weight_files(folder, model.variant) or _allowed_pickles(component.name, folder, model)
    dtype = component.dtype or model.dtype or own_dtype(tuple(f for f in files if f.suffix == ".safetensors"))
    return Part(component.name, cls, folder, files, dtype)


def load_part(part: Part, model: ModelSpec) -> Any:
    """Load a part: modules in their dtype, in eval mode, without gradients; tokenizers and the like as they are.

    Weights whose dtype is the file's stay views of the mapped file until somebody places them.
    """
    options: dict[str, Any] = {}
    if part.cls.__module__.startswith("transformers."):
        options["trust_remote_code"] = model.trust_remote_code
    if part.is_module:
        options |= {"use_safetensors": all(file.suffix == ".safetensors" for file in part.files)}
        options |= {"dtype": torch_dtype(part)}
        options |= {"variant": model.variant} if _has_variant(part, model) else {}
    try:
        loaded = part.cls.from_pretrained(str(part.folder), local_files_only=True, **options)
    except (OSError, ValueError, RuntimeError, TypeError, KeyError) as error:
        reason = str(error).strip().splitlines() or [type(error).__name__]
        raise LoadError(f"component '{part.name}': cannot be loaded from '{part.folder}': {reason[0]}") from error
    return loaded.eval().requires_grad_(False) if part.is_module else loaded


def load_shell(part: Part) -> nn.Module:
    """Build a module from its config alone, weights on the meta device: for what is asked about but never called."""
    with torch.device("meta"):
        if hasattr(part.cls, "load_config"):
            shell: nn.Module = part.cls.from_config(part.cls.load_config(str(part.folder)))
        else:  # transformers
            shell = part.cls(part.cls.config_class.from_pretrained(str(part.folder), local_files_only=True))
    return shell.eval().requires_grad_(False)


def torch_dtype(part: Part) -> torch.dtype:
    """Return the dtype of a part as torch's own. Raises `ConfigError` for a name torch does not have."""
    found = getattr(torch, part.dtype or "float32", None)
    if not isinstance(found, torch.dtype):
        raise ConfigError.of(f"pipeline.components.{part.name}.dtype", f"unknown dtype '{part.dtype}'")
    return found


def _component_folder(index: ModelIndex, model: ModelSpec, component: ComponentSpec) -> Path:
    """The model's own subfolder, or the component's `source`: a component folder or a pipeline that has one."""
    if component.source is None:
        return index.component_folder(component.name)
    folder = Path(component.source).expanduser()
    if not folder.is_dir() and not is_hub_name(component.source) and ":" not in component.source:
        raise LoadError(f"pipeline.components.{component.name}.source: the folder '{folder}' does not exist")
    if (folder / "config.json").is_file():
        return folder
    return locate_model(ModelSpec(source=component.source, revision=model.revision)) / component.name


def _allowed_pickles(name: str, folder: Path, model: ModelSpec) -> tuple[Path, ...]:
    pickles = pickle_files(folder)
    if not pickles:
        others = ", ".join(file.name for file in sorted(folder.glob("*.safetensors")))
        hint = f" but those of a variant ({others}); choose it with pipeline.model.variant" if others else ""
        raise LoadError(f"component '{name}': the folder '{folder}' holds no weights{hint}")
    if not model.allow_pickle:
        raise LoadError(
            f"component '{name}': '{pickles[0]}' is a pickle, which is not read; convert it to safetensors "
            f"(load it with torch.load(..., weights_only=True), write it with safetensors.torch.save_file), or set "
            f"{PICKLE_KEY}=true to have its tensors read"
        )
    return pickles


def _has_variant(part: Part, model: ModelSpec) -> bool:
    return bool(model.variant) and any(f".{model.variant}" in file.name for file in part.files)
