"""Names of components, the groups they belong to, and what a selector covers. No torch."""

import re
from collections.abc import Mapping

from framework.compose.sources import ComponentFacts

GROUPS = ("dit", "text_encoder", "image_encoder", "vae")
ALL = "all"

EXACT, GROUP, SCOPE, EVERY = range(4)  # how closely a selector names a component; lower wins

_DIT_NAMES = frozenset(
    {"transformer", "video_dit", "audio_dit", "dit", "unet", "prior", "controlnet"}
    | {"paint_transformer", "delight_transformer"}
)
_VAE_NAMES = frozenset({"vae", "video_vae", "audio_vae", "delight_vae", "hy3dshape_vae", "paint_vae"})

# The scopes of the legacy keys are wider or narrower than the groups: (group that belongs, names that belong too).
_LEGACY_VAES = frozenset({"vae", "video_vae", "audio_vae", "vocoder", "spatial_upsampler", "condition_image_encoder"})
LEGACY_SCOPES: Mapping[str, tuple[str | None, frozenset[str]]] = {
    "dit": ("dit", frozenset({"dual_tower_bridge"})),
    "dit_cpu": (
        "dit",
        frozenset({"dual_tower_bridge", "connectors", "unconditional_transformer", "vision_language_encoder"}),
    ),
    "text_encoder": ("text_encoder", frozenset()),
    "image_encoder": ("image_encoder", frozenset()),
    "image_encoder_list": ("image_encoder", frozenset({"condition_image_encoder"})),
    "vae_list": ("vae", _LEGACY_VAES),
    "vae_cpu": ("vae", _LEGACY_VAES | {"sound_tokenizer"}),
    "vae_layerwise": (None, frozenset({"vae", "video_vae", "condition_image_encoder"})),
}


def fold_selector(text: str) -> str:
    """Selectors and component names are compared with case, outer space and `-` against `_` folded."""
    return text.strip().lower().replace("-", "_")


def group_of(component_name: str, declared_group: str | None) -> str | None:
    """The group of a component: the YAML's `group:`, else what its name says; None for a helper in no group."""
    if declared_group is not None:
        return fold_selector(declared_group)
    name = fold_selector(component_name)
    base = re.sub(r"_\d+$", "", name)
    if base in _DIT_NAMES:
        return "dit"
    if name.startswith("text_encoder") or name.endswith("text_encoder"):
        return "text_encoder"
    if name == "image_encoder":
        return "image_encoder"
    return "vae" if base in _VAE_NAMES else None


def targets_of(selector: str, components: Mapping[str, ComponentFacts]) -> dict[str, int]:
    """The components that a folded canonical selector covers, each with how closely it is named."""
    targets = {}
    for name, facts in components.items():
        if fold_selector(name) == selector:
            targets[name] = EXACT
        elif selector in GROUPS and facts.group == selector:
            targets[name] = GROUP
        elif selector == ALL:
            targets[name] = EVERY
    return targets


def scope_targets(scope: str, components: Mapping[str, ComponentFacts], rank: int = SCOPE) -> dict[str, int]:
    """The components in one of `LEGACY_SCOPES`, all with `rank`."""
    group, names = LEGACY_SCOPES[scope]
    return {
        name: rank
        for name, facts in components.items()
        if (group is not None and facts.group == group) or fold_selector(name) in names
    }


def is_known(selector: str, components: Mapping[str, ComponentFacts]) -> bool:
    """Whether a folded selector is `all`, a group, or the name of a component of this pipeline."""
    return selector == ALL or selector in GROUPS or any(fold_selector(name) == selector for name in components)


def briefest(names: Mapping[str, int], components: Mapping[str, ComponentFacts]) -> tuple[str, ...]:
    """The shortest canonical selectors that cover exactly `names`: groups where complete, else component names."""
    left = list(names)
    if left and len(left) == len(components):
        return (ALL,)
    shown: list[str] = []
    for group in GROUPS:
        members = [name for name, facts in components.items() if facts.group == group]
        if members and all(name in left for name in members):
            shown.append(group)
            left = [name for name in left if name not in members]
    return (*shown, *left)
