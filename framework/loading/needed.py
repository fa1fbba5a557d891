"""Which components of a checkpoint a graph needs, and which only for their configs. No torch."""

from framework.loading.index import ClassName, ModelIndex
from framework.spec import PipelineSpec

WHOLE = "diffusers_pipeline"  # the backend that calls a pipeline as a whole
_HELPERS = ("Tokenizer", "Scheduler", "Processor", "Extractor", "Solver")
"""What the names of classes without weights have in them."""


def needed_components(pipeline: PipelineSpec, index: ModelIndex, used: frozenset[str]) -> list[str]:
    """Names to load: used modules, the VAE for its config, and the helpers of what is used; a pipeline that is called
    as a whole gets everything its checkpoint has."""
    names = []
    for name in sorted(used):
        if index.components.get(name) is not None or not pipeline.components[name].optional:
            names.append(name)
    for name, wanted in index.components.items():
        if wanted is None or name in used:
            continue
        if pipeline.backend == WHOLE or name in ("vae", "scheduler", "guider") or _helps(name, used):
            names.append(name)
    return names


def has_weights(wanted: ClassName) -> bool:
    """Whether a class of an index is a module, as far as its name tells."""
    return not any(word in wanted.name for word in _HELPERS)


def _helps(name: str, used: frozenset[str]) -> bool:
    """Tokenizers and processors belong to the encoder with the same number: `tokenizer_2` to `text_encoder_2`."""
    for prefix, encoder in (("tokenizer", "text_encoder"), ("processor", "text_encoder")):
        if name.startswith(prefix):
            return f"{encoder}{name.removeprefix(prefix)}" in used
    return name in ("image_processor", "feature_extractor") and bool(used & {"image_encoder", "safety_checker"})
