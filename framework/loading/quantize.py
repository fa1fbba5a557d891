"""Stores a component's weights in fewer bits while it is loaded. Imports torch, and the method's library when used.

Every method works on the host, so all devices and residency modes get the same bytes.
"""

import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import torch
from torch import nn

from framework.errors import ConfigError, LoadError
from framework.quantization import Quantization

FP8 = torch.float8_e4m3fn


def library_options(quantization: Quantization | None, cls: Any, dtype: torch.dtype) -> dict[str, Any]:
    """Return what `from_pretrained` or `from_single_file` of `cls` is told, for methods of the library's own."""
    if quantization is None or quantization.method.name not in LIBRARY_CONFIGS:
        return {}
    compute = compute_dtype(quantization, dtype)
    library = "transformers" if cls.__module__.startswith("transformers.") else "diffusers"
    return {"quantization_config": LIBRARY_CONFIGS[quantization.method.name](library, compute, quantization.skip)}


def quantize(component: str, module: nn.Module, quantization: Quantization, dtype: torch.dtype) -> None:
    """Change `module` in place, for methods that are ours to carry out. Raises `LoadError` where nothing fits."""
    carry_out = OWN.get(quantization.method.name)
    if carry_out is None:
        return
    if quantization.method.name == "layerwise-casting-fp8" and not type(module).__module__.startswith("diffusers."):
        reason = f"{type(module).__name__} is no model of diffusers, so {quantization.method.name} is not for it"
        raise ConfigError.of(quantization.key, f"component '{component}': {reason}", hint="torchao-fp8 works")
    targets = list(_targets(module, quantization.skip))
    if not targets:
        raise LoadError(
            f"{quantization.key}: component '{component}' has no layer that {quantization.method.name} takes"
        )
    carry_out(module, targets, compute_dtype(quantization, dtype))


def compute_dtype(quantization: Quantization, dtype: torch.dtype) -> torch.dtype:
    """Return the dtype that layers compute in: what was said, else the component's own."""
    chosen = getattr(torch, quantization.compute_dtype or "", dtype)
    assert isinstance(chosen, torch.dtype)
    return chosen


# torchao


def _torchao_int8(module: nn.Module, targets: list[tuple[str, nn.Module]], dtype: torch.dtype) -> None:
    from torchao.quantization import Int8WeightOnlyConfig

    _torchao(module, targets, Int8WeightOnlyConfig())


def _torchao_fp8(module: nn.Module, targets: list[tuple[str, nn.Module]], dtype: torch.dtype) -> None:
    from torchao.quantization import Float8WeightOnlyConfig

    _torchao(module, targets, Float8WeightOnlyConfig(weight_dtype=FP8))


def _torchao(module: nn.Module, targets: list[tuple[str, nn.Module]], config: Any) -> None:
    from torchao.quantization import quantize_

    chosen = {id(part) for _, part in targets if isinstance(part, nn.Linear)}
    with torch.no_grad():
        quantize_(module, config, filter_fn=lambda part, name: id(part) in chosen)
    module.requires_grad_(False)


def _layerwise_casting(module: nn.Module, targets: list[tuple[str, nn.Module]], dtype: torch.dtype) -> None:
    from framework.loading.layerwise_casting import cast_for_calls

    cast_for_calls((part for _, part in targets), FP8, dtype)


# Which layers


def _targets(module: nn.Module, skip: tuple[str, ...], prefix: str = "") -> Iterator[tuple[str, nn.Module]]:
    """Yield the layers to change: those that diffusers takes, without the names it or the user leaves alone."""
    patterns = (*skip, *_left_alone(module)) if not prefix else skip
    if prefix and any(re.search(pattern, prefix) for pattern in patterns):
        return
    if isinstance(module, _layer_classes()):
        yield prefix, module
        return
    for name, part in module.named_children():
        yield from _targets(part, patterns, f"{prefix}.{name}" if prefix else name)


def _layer_classes() -> tuple[type, ...]:
    from diffusers.hooks._common import _GO_LC_SUPPORTED_PYTORCH_LAYERS

    found: tuple[type, ...] = _GO_LC_SUPPORTED_PYTORCH_LAYERS
    return found


def _left_alone(module: nn.Module) -> tuple[str, ...]:
    """Patterns of names that the model's class wants in full, as diffusers' `enable_layerwise_casting` has them."""
    from diffusers.hooks.layerwise_casting import DEFAULT_SKIP_MODULES_PATTERN

    found = list(DEFAULT_SKIP_MODULES_PATTERN)
    for attribute in ("_skip_layerwise_casting_patterns", "_keep_in_fp32_modules"):
        found += list(getattr(module, attribute, None) or ())
    return tuple(found)


# Methods that the libraries carry out


def _gguf(library: str, dtype: torch.dtype, skip: tuple[str, ...]) -> Any:
    from diffusers import GGUFQuantizationConfig

    return GGUFQuantizationConfig(compute_dtype=dtype)


def _bnb(library: str, dtype: torch.dtype, skip: tuple[str, ...], **bits: Any) -> Any:
    import importlib

    config = importlib.import_module(library).BitsAndBytesConfig
    return config(**bits, llm_int8_skip_modules=list(skip) or None)


def _bnb_nf4(library: str, dtype: torch.dtype, skip: tuple[str, ...]) -> Any:
    return _bnb(library, dtype, skip, load_in_4bit=True, bnb_4bit_quant_type="nf4", bnb_4bit_compute_dtype=dtype)


def _bnb_int8(library: str, dtype: torch.dtype, skip: tuple[str, ...]) -> Any:
    return _bnb(library, dtype, skip, load_in_8bit=True)


def _quanto_int8(library: str, dtype: torch.dtype, skip: tuple[str, ...]) -> Any:
    import importlib

    config = importlib.import_module(library).QuantoConfig
    width = {"weights_dtype": "int8"} if library == "diffusers" else {"weights": "int8"}
    return config(**width, modules_to_not_convert=list(skip) or None)


Config = Callable[[str, torch.dtype, tuple[str, ...]], Any]
CarryOut = Callable[[nn.Module, list[tuple[str, nn.Module]], torch.dtype], None]
LIBRARY_CONFIGS: Mapping[str, Config] = {
    "gguf": _gguf,
    "bnb-nf4": _bnb_nf4,
    "bnb-int8": _bnb_int8,
    "quanto-int8": _quanto_int8,
}
OWN: Mapping[str, CarryOut] = {
    "torchao-int8": _torchao_int8,
    "torchao-fp8": _torchao_fp8,
    "layerwise-casting-fp8": _layerwise_casting,
}
