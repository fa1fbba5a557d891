"""One component from its folder: class, dtype, weights. Imports torch, and diffusers or transformers when called."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import nn

from framework.errors import ConfigError, LoadError
from framework.loading.classes import component_class
from framework.loading.headers import FLOAT8_NAMES, num_weights, own_dtype, pickle_files, weight_bytes, weight_files
from framework.loading.index import CONFIG_FILES, ModelIndex, read_json
from framework.loading.places import CONFIG_FILE, component_place
from framework.loading.quantize import library_options, quantize
from framework.loading.single_file import load_single_file
from framework.loading.source import GGUF, SAFETENSORS, is_hub_name
from framework.quantization import Quantization
from framework.spec import ComponentSpec, ModelSpec

SMALLEST = "bfloat16"  # to compute in where the file has fewer bits
PICKLE_KEY = "pipeline.model.allow_pickle"
TELL_WHAT_IS_MISSING = {"ModelMixin", "PreTrainedModel"}  # of diffusers and of transformers


@dataclass(frozen=True, slots=True)
class Part:
    """A component before it is loaded: its class, the folder of its config and, for a module, its weight files."""

    name: str
    cls: Any
    folder: Path
    files: tuple[Path, ...] = ()
    dtype: str | None = None
    single: Path | None = None  # the one file that holds the weights, beside a folder that has the config
    quantization: Quantization | None = None

    @property
    def is_module(self) -> bool:
        return issubclass(self.cls, nn.Module)

    @property
    def run_bytes(self) -> int:
        """Bytes of the weights in the run's dtype, as the headers tell; a pickle's are its size on disk.

        Of quantised weights the least, as if none stayed as it was.
        """
        made = self.quantization.method.weight_bytes if self.quantization is not None else None
        if made is not None:
            return int(num_weights(self.files) * made)
        if any(file.suffix != ".safetensors" for file in self.files):
            return sum(file.stat().st_size for file in self.files)
        return weight_bytes(self.files, self.dtype)


def find_part(
    index: ModelIndex,
    model: ModelSpec,
    component: ComponentSpec,
    with_weights: bool = True,
    quantization: Quantization | None = None,
) -> Part:
    """Resolve class, folder, files and dtype of `component` without reading a weight.

    The dtype is the component's, else the model's, else the one most bytes of the checkpoint have. Without weights only
    the config has to be there. Raises `LoadError` naming component and folder where something is missing or refused.
    """
    wanted = index.components.get(component.name)
    if wanted is None:
        raise LoadError(f"{index.folder}: the checkpoint has no component '{component.name}'")
    cls = component_class(index, component.name, wanted, model.trust_remote_code)
    place = component_place(index, component)
    folder = place.folder
    if not folder.is_dir():
        hint = "; complete it with `framework download` and the same keys" if is_hub_name(model.source) else ""
        raise LoadError(f"component '{component.name}': the folder '{folder}' does not exist{hint}")
    for config in (folder / file for file in CONFIG_FILES):
        if config.is_file():
            read_json(config)  # what is no object, libraries take for the name of something on the hub
    if not with_weights or not issubclass(cls, nn.Module):
        return Part(component.name, cls, folder)
    if place.file is not None:
        files: tuple[Path, ...] = (place.file,)
    else:
        files = weight_files(folder, model.variant) or _allowed_pickles(component.name, folder, model)
    dtype = component.dtype or model.dtype or own_dtype(tuple(f for f in files if f.suffix == SAFETENSORS))
    dtype = SMALLEST if dtype in FLOAT8_NAMES or (dtype is None and place.file is not None) else dtype
    _check_quantization(component.name, folder, files, quantization)
    return Part(component.name, cls, folder, files, dtype, place.file, quantization)


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
        options |= library_options(part.quantization, part.cls, torch_dtype(part))
    try:
        if part.single is not None:
            options.pop("use_safetensors"), options.pop("variant", None), options.pop("trust_remote_code", None)
            loaded = load_single_file(part.name, part.cls, part.folder, part.single, load_shell(part), **options)
        else:
            loaded = _from_folder(part, options)
    except (ImportError, OSError, ValueError, RuntimeError, TypeError, KeyError) as error:
        reason = str(error).strip().splitlines() or [type(error).__name__]
        raise LoadError(f"component '{part.name}': cannot be loaded from '{part.folder}': {reason[0]}") from error
    if not part.is_module:
        return loaded
    module: nn.Module = loaded.eval().requires_grad_(False)
    if part.quantization is not None:
        quantize(part.name, module, part.quantization, torch_dtype(part))
    return module


def _from_folder(part: Part, options: dict[str, Any]) -> Any:
    """Load with the library's own function. What the files lack it would fill with random numbers: that is refused."""
    names = {base.__name__ for base in part.cls.__mro__}
    if not part.is_module or not names & TELL_WHAT_IS_MISSING:
        return part.cls.from_pretrained(str(part.folder), local_files_only=True, **options)
    loaded, told = part.cls.from_pretrained(
        str(part.folder), local_files_only=True, output_loading_info=True, **options
    )
    missing = set(told["missing_keys"])
    there = {id(weight) for name, weight in loaded.named_parameters(remove_duplicate=False) if name not in missing}
    lacking = sorted(name for name, weight in loaded.named_parameters() if name in missing and id(weight) not in there)
    if lacking:
        others = f" and {len(lacking) - 1} more" if len(lacking) > 1 else ""
        raise LoadError(
            f"component '{part.name}': the files in '{part.folder}' lack the weight '{lacking[0]}'{others}; "
            f"they are incomplete or belong to another model, so fetch them again"
        )
    return loaded


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


def _check_quantization(name: str, folder: Path, files: tuple[Path, ...], quantization: Quantization | None) -> None:
    """Refuse a method that the files are not made for, and weights whose own method nobody names."""
    stored = read_json(folder / CONFIG_FILE).get("quantization_config") if (folder / CONFIG_FILE).is_file() else None
    if stored:
        method = stored.get("quant_method", "unknown") if isinstance(stored, dict) else "unknown"
        raise LoadError(
            f"component '{name}': the weights in '{folder}' are quantised already ({method}), which is not read; "
            f"use the full weights with numerics.quantize.{name}, or a GGUF file as its source"
        )
    is_gguf = any(file.suffix == GGUF for file in files)
    if is_gguf != (quantization is not None and quantization.method.name == "gguf"):
        key = quantization.key if quantization is not None else f"numerics.quantize.{name}"
        reason = "a GGUF file is its own method" if is_gguf else "gguf needs a .gguf file as the component's source"
        raise ConfigError.of(key, reason, hint=f"write gguf, or another pipeline.components.{name}.source")


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
