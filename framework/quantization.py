"""Which ways to store weights in fewer bits there are, and what each can do: one table. No torch.

`METHODS` is the whole truth: composing and running both check it before a weight is read, and `docs/quantization.md`
prints it. A mode with a reason is refused with it.
"""

import importlib.util
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

from framework.errors import Problem, did_you_mean

KEY = "numerics.quantize"
ALL_MODES: Mapping[str, str] = MappingProxyType({})
"""No mode is refused."""

_STATE_BESIDE = "its weights keep their scales in attributes, which cannot travel with them"
_UNPROVEN = "moving its weights is not proven here"
_ONLY_RESIDENT = {"component-offload", "layerwise-offload"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Method:
    """One way to store weights. `refused` maps a residency mode to the reason it is refused for.

    `weight_bytes` is what a weight takes where the method makes it; None: the file has it as it is.
    `packages` must be importable, `extra` installs them. `devices` are kinds of platforms that compute with it.
    `bits` is what a weight takes; `adapters` the reason why no LoRA can be merged, empty where one can.
    """

    name: str
    bits: str
    what: str
    devices: tuple[str, ...]
    weight_bytes: float | None = 1.0
    packages: tuple[str, ...] = ()
    extra: str = ""
    refused: Mapping[str, str] = field(default_factory=lambda: ALL_MODES)
    adapters: str = "its weights are quantised"
    compute_dtypes: tuple[str, ...] = ("bfloat16", "float16", "float32")

    def refusal(self, mode: str) -> str:
        """Why `mode` cannot be had; empty where it can. A mode of a third party is known to nobody and passes."""
        return self.refused.get(mode, "")


def _only_resident(reason: str) -> Mapping[str, str]:
    return MappingProxyType(dict.fromkeys(sorted(_ONLY_RESIDENT), reason))


METHODS: Mapping[str, Method] = MappingProxyType(
    {
        method.name: method
        for method in (
            Method(
                name="gguf",
                bits="2 to 8",
                what="as the `.gguf` file has it; each layer is unpacked while it runs",
                devices=("cpu", "cuda", "mps", "sim"),
                weight_bytes=None,
                packages=("gguf",),
                extra="gguf",
            ),
            Method(
                name="torchao-int8",
                bits="8",
                what="linear layers in int8, one scale a row, made while loading",
                devices=("cpu", "cuda", "sim"),
                packages=("torchao",),
                extra="torchao",
            ),
            Method(
                name="torchao-fp8",
                bits="8",
                what="linear layers in float8_e4m3, one scale a row, made while loading",
                devices=("cpu", "cuda", "sim"),
                packages=("torchao",),
                extra="torchao",
            ),
            Method(
                name="layerwise-casting-fp8",
                bits="8",
                what="weights in float8_e4m3 without scales, each layer cast while it runs",
                devices=("cpu", "cuda", "sim"),
            ),
            Method(
                name="bnb-nf4",
                bits="4",
                what="linear layers in bitsandbytes' nf4, made while loading",
                devices=("cuda",),
                weight_bytes=0.5,
                packages=("bitsandbytes",),
                extra="bitsandbytes",
                refused=_only_resident(_STATE_BESIDE),
            ),
            Method(
                name="bnb-int8",
                bits="8",
                what="linear layers in bitsandbytes' int8, made while loading",
                devices=("cuda",),
                packages=("bitsandbytes",),
                extra="bitsandbytes",
                refused=_only_resident(_STATE_BESIDE),
                compute_dtypes=("float16",),
            ),
            Method(
                name="quanto-int8",
                bits="8",
                what="linear layers in optimum-quanto's int8, made while loading",
                devices=("cpu", "cuda", "mps"),
                packages=("optimum.quanto",),
                extra="quanto",
                refused=_only_resident(_UNPROVEN),
            ),
        )
    }
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Quantization:
    """What is done to one component. `compute_dtype` None: the component's own; `skip` are patterns of module names."""

    method: Method
    compute_dtype: str | None = None
    skip: tuple[str, ...] = ()
    key: str = KEY  # of the config, for messages

    @property
    def identity(self) -> str:
        """Text that changes with what is stored."""
        return f"{self.method.name}:{self.compute_dtype or ''}:{','.join(self.skip)}"


def read_quantization(key: str, value: Any) -> tuple[Quantization | None, list[Problem]]:
    """Read one entry of `numerics.quantize`: the name of a method, or a map with `method`; null and `off` are none."""
    said = {"method": value} if isinstance(value, str) else dict(value or {})
    name = said.get("method")
    if name in (None, "off", False):
        lacks = [Problem(key, "the key 'method' is required", hint=did_you_mean("", METHODS))]
        return None, lacks if name is None and said else []
    method = METHODS.get(str(name).lower().replace("_", "-"))
    if method is None:
        return None, [Problem(f"{key}.method", f"unknown method '{name}'", hint=did_you_mean(str(name), METHODS))]
    dtype = said.get("compute_dtype")
    if dtype is not None and dtype not in method.compute_dtypes:
        hint = f"write {' or '.join(method.compute_dtypes)}"
        return None, [Problem(f"{key}.compute_dtype", f"{method.name} does not compute in '{dtype}'", hint=hint)]
    skip = said.get("skip") or ()
    chosen = (skip,) if isinstance(skip, str) else tuple(skip)
    return Quantization(method=method, compute_dtype=dtype, skip=chosen, key=key), []


def capability_problems(
    quantized: Mapping[str, Quantization],
    modes: Mapping[str, str],
    device: str | None = None,
    *,
    packages: bool = True,
) -> Iterator[Problem]:
    """Yield what cannot be had: a method with its mode, on a device (its kind; None: unknown), without its package."""
    for component, quantization in quantized.items():
        method = quantization.method
        mode = modes.get(component, "resident")
        if reason := method.refusal(mode):
            able = [name for name in ("resident", "component-offload", "layerwise-offload") if not method.refusal(name)]
            text = f"'{component}' cannot do {mode} with {method.name}: {reason}"
            yield Problem(quantization.key, text, hint=f"{' and '.join(able)} would work")
        if device is not None and device not in method.devices:
            hint = f"it computes on {', '.join(method.devices)}"
            yield Problem(quantization.key, f"{method.name} cannot be used on {device}", hint=hint)
        if packages and (missing := [package for package in method.packages if not _is_installed(package)]):
            reason = f"{method.name} needs the package '{missing[0]}', which is not installed"
            yield Problem(quantization.key, reason, hint=f"pip install framework[{method.extra}]")


def describe(component: str, quantization: Quantization) -> str:
    """One line for the log and `explain`: what changes the picture."""
    method = quantization.method
    return f"{component} is {method.name} ({method.what}): changes the picture"


def capability_table() -> str:
    """The table as Markdown, for `docs/quantization.md`."""
    modes = ("resident", "component-offload", "layerwise-offload")
    head = ("method", "bits", *modes, "pinned", "devices", "LoRA", "install")
    rows = [
        (
            f"`{method.name}`",
            method.bits,
            *("no" if method.refusal(mode) else "yes" for mode in modes),
            "no" if method.refusal("component-offload") else "yes",
            ", ".join(method.devices),
            "no" if method.adapters else "yes",
            f"`framework[{method.extra}]`" if method.extra else "nothing",
        )
        for method in METHODS.values()
    ]
    lines = [" | ".join(row) for row in (head, ("---",) * len(head), *rows)]
    notes = [
        f"- `{method.name}`: {method.what}." + "".join(f" Not {mode}: {why}." for mode, why in method.refused.items())
        for method in METHODS.values()
    ]
    return "\n".join([*(f"| {line} |" for line in lines), "", *notes])


def _is_installed(package: str) -> bool:
    try:
        return importlib.util.find_spec(package) is not None
    except (ImportError, ValueError):  # the parent of a dotted name is missing
        return False
