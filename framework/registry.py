"""Named parts: stages, strategies, families and platforms, resolved by name on first use.

A registry holds `name -> "module:object"` for the built-ins, so that listing names imports nothing.
"""

import importlib
from collections.abc import Callable, Iterable
from typing import Any, Generic, TypeVar

from framework.errors import ConfigError, did_you_mean

T = TypeVar("T")


def fold_name(name: str) -> str:
    """Names are compared with case and `_` against `-` folded: `Layerwise_Offload` is `layerwise-offload`."""
    return name.strip().lower().replace("_", "-")


class Registry(Generic[T]):
    """One dictionary of named parts.

    `attributes` are what an object must have to be registered; a missing one is refused at registration, not at call.
    """

    def __init__(self, kind: str, builtins: dict[str, str], attributes: Iterable[str] = ()) -> None:
        self.kind = kind
        self._lazy = {fold_name(name): target for name, target in builtins.items()}
        self._shown = {fold_name(name): name for name in builtins}
        self._loaded: dict[str, T] = {}
        self._attributes = tuple(attributes)

    def register(self, name: str) -> Callable[[T], T]:
        """Return the decorator that stores its target under `name`; duplicates are refused showing both sides."""

        def store(target: T) -> T:
            key = fold_name(name)
            missing = [attribute for attribute in self._attributes if not hasattr(target, attribute)]
            if missing:
                raise TypeError(f"{self.kind} '{name}' ({describe(target)}) lacks {', '.join(missing)}")
            known = self._loaded.get(key)
            lazy = self._lazy.get(key)
            if known is not None and known is not target:
                raise ValueError(f"{self.kind} '{name}' is registered by {describe(known)} and {describe(target)}")
            if lazy is not None and lazy != describe(target):
                raise ValueError(f"{self.kind} '{name}' is registered by {lazy} and {describe(target)}")
            self._loaded[key] = target
            self._shown.setdefault(key, name)
            return target

        return store

    def add_lazy(self, name: str, target: str) -> None:
        """Announce a third party's `module:object` without importing it."""
        key = fold_name(name)
        known = self._lazy.get(key)
        if known is not None and known != target:
            raise ValueError(f"{self.kind} '{name}' is registered by {known} and {target}")
        self._lazy[key] = target
        self._shown.setdefault(key, name)

    def names(self) -> tuple[str, ...]:
        """All registered names, sorted, without importing anything."""
        return tuple(sorted(self._shown.values()))

    def __contains__(self, name: str) -> bool:
        return fold_name(name) in self._shown

    def get(self, name: str) -> T:
        """Return the object called `name`, importing its module on first use.

        Raises `ConfigError` naming the closest match when there is none.
        """
        key = fold_name(name)
        if key not in self._loaded:
            if key not in self._lazy:
                reason = f"unknown {self.kind} '{name}'"
                raise ConfigError.of("", reason, hint=did_you_mean(name, self.names()))
            module, _, attribute = self._lazy[key].partition(":")
            self._loaded[key] = getattr(importlib.import_module(module), attribute)
        return self._loaded[key]


def describe(target: object) -> str:
    """`module:object` of a class or function."""
    return f"{getattr(target, '__module__', '?')}:{getattr(target, '__qualname__', repr(target))}"


STAGES: Registry[Any] = Registry(
    "stage",
    {
        "text_encode": "stages.text_encode:TextEncode",
        "image_encode": "stages.image_encode:ImageEncode",
        "condition": "stages.condition:Conditioning",
        "denoise": "stages.denoise:Denoise",
        "decode": "stages.decode:Decode",
        "safety_check": "stages.safety_check:SafetyCheck",
        "export": "stages.export:Export",
        "diffusers_pipeline": "stages.diffusers_pipeline:DiffusersPipeline",
    },
    attributes=("inputs", "outputs", "run"),
)
FAMILIES: Registry[Any] = Registry(
    "family",
    {
        "flux": "stages.families.flux:FluxFamily",
        "flux_kontext": "stages.families.flux:FluxKontextFamily",
        "flux2_klein": "stages.families.flux2_klein:Flux2KleinFamily",
        "pixart_sigma": "stages.families.pixart_sigma:PixArtSigmaFamily",
        "qwen_image": "stages.families.qwen_image:QwenImageFamily",
        "qwen_image_edit": "stages.families.qwen_image_edit:QwenImageEditFamily",
        "sd3": "stages.families.sd3:StableDiffusion3Family",
        "z_image": "stages.families.z_image:ZImageFamily",
        "wan": "stages.families.wan:WanFamily",
        "wan_i2v": "stages.families.wan_i2v:WanImageToVideoFamily",
        "hunyuan_video15": "stages.families.hunyuan_video15:HunyuanVideo15Family",
        "ltx": "stages.families.ltx:LTXFamily",
        "ltx_i2v": "stages.families.ltx:LTXImageToVideoFamily",
        "sana": "stages.families.sana:SanaFamily",
        "sdxl": "stages.families.sdxl:SDXLFamily",
        "sdxl_img2img": "stages.families.sdxl:SDXLImageToImageFamily",
        "sdxl_inpaint": "stages.families.sdxl:SDXLInpaintFamily",
        "stable_diffusion": "stages.families.stable_diffusion:StableDiffusionFamily",
    },
    attributes=("encode", "denoise", "decode"),
)
STRATEGIES: Registry[Any] = Registry(
    "strategy",
    {
        "resident": "strategies.resident:Resident",
        "component-offload": "strategies.component_offload:ComponentOffload",
        "layerwise-offload": "strategies.layerwise_offload:LayerwiseOffload",
    },
    attributes=("prepare", "finish_use"),
)

register_stage = STAGES.register
register_family = FAMILIES.register
register_strategy = STRATEGIES.register

MODES = ("resident", "component-offload", "layerwise-offload")
