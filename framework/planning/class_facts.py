"""What a checkpoint's file does not say about its module, by class: ties, buffers, what stays in float32. No torch.

Names and rules are those of diffusers 0.42 and transformers 5; the tests compare them with the real classes.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from framework.planning.gguf_file import is_packed
from framework.planning.tensors import Tensor

Config: TypeAlias = Mapping[str, Any]
SAVED_BUFFERS = frozenset({"running_mean", "running_var", "num_batches_tracked"})
"""Last parts of names that are buffers in any class: those of batch norms."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClassFacts:
    """Rules for one class; names are dotted, as in the module.

    `float32` are parts of names whose weights are loaded in float32 whatever is asked for, `float32_under_half` those
    for which only float16 is refused. `buffers` are names of buffers in the file, `made` builds those that are not, in
    the run's dtype. `ties` are pairs of names that are one weight, where the config has `tie_key` or needs none.
    `tables` are embeddings that nothing but a lookup reads. `renames` turn prefixes in files into the module's.
    """

    float32: tuple[str, ...] = ()
    float32_under_half: tuple[str, ...] = ()
    buffers: tuple[str, ...] = ()
    made: Callable[[Config, str], Sequence[Tensor]] = lambda config, dtype: ()
    ties: tuple[tuple[str, str], ...] = ()
    tie_key: str | None = None
    tables: tuple[str, ...] = ()
    renames: tuple[tuple[str, str], ...] = ()

    def tied(self, config: Config) -> tuple[tuple[str, str], ...]:
        """Return the pairs that are tied under `config`."""
        wanted = self.tie_key is None or bool(config.get(self.tie_key, False))
        return self.ties if wanted else ()

    def dtype_of(self, tensor: Tensor, dtype: str) -> str:
        """Return the dtype that loading gives a stored tensor when the component is loaded in `dtype`."""
        parts = tensor.name.split(".")
        kept = any(part in self.float32 for part in parts)
        if not tensor.floating:
            return "float32" if kept and is_packed(tensor) else tensor.dtype
        half = dtype == "float16" and any(part in self.float32_under_half for part in parts)
        return "float32" if kept or half else dtype

    def is_buffer(self, name: str) -> bool:
        return name in self.buffers or name.rpartition(".")[2] in SAVED_BUFFERS

    def module_name(self, name: str) -> str:
        """Return the module's name for a name in a file."""
        for old, new in self.renames:
            if name.startswith(old):
                return new + name.removeprefix(old)
        return name


def class_facts(class_name: str) -> ClassFacts:
    """Return the rules of a class; one that is not known has none of its own."""
    return _FACTS.get(class_name, _PLAIN)


def is_known(class_name: str) -> bool:
    """Whether the class has been looked at, so that nothing of its module is missing from the figures."""
    return class_name in _FACTS


def known_facts() -> Mapping[str, ClassFacts]:
    return _FACTS


# Buffers that are made with the module and are in no file


def _wan_rope(config: Config, dtype: str) -> list[Tensor]:
    shape = (config.get("rope_max_seq_len", 1024), config.get("attention_head_dim", 128))
    return [Tensor(f"rope.freqs_{kind}", shape, "float32") for kind in ("cos", "sin")]


def _grid_positions(config: Config, dtype: str) -> list[Tensor]:
    side = config.get("sample_size", 128) // config.get("patch_size", 2)
    width = config.get("num_attention_heads", 16) * config.get("attention_head_dim", 72)
    return [Tensor("pos_embed.pos_embed", (1, side * side, width), "float32")]


def _positions(name: str) -> Callable[[Config, str], list[Tensor]]:
    def text(config: Config, dtype: str) -> list[Tensor]:
        return [Tensor(name, (1, config.get("max_position_embeddings", 77)), "int64")]

    return text


def _patches(name: str, class_tokens: int, inner: str | None = None) -> Callable[[Config, str], list[Tensor]]:
    def vision(config: Config, dtype: str) -> list[Tensor]:
        own = config.get(inner, {}) if inner else config
        side = own.get("image_size", 224) // own.get("patch_size", 32 if class_tokens else 16)
        return [Tensor(name, (1, side * side + class_tokens), "int64")]

    return vision


def _rotary(prefix: str, half: int) -> list[Tensor]:
    return [Tensor(f"{prefix}.{name}", (half,), "float32") for name in ("inv_freq", "original_inv_freq")]


def _head_dim(config: Config) -> int:
    own = config.get("head_dim")
    return int(own or config.get("hidden_size", 4096) // config.get("num_attention_heads", 32))


def _text_rotary(prefix: str, default: int | None = None) -> Callable[[Config, str], list[Tensor]]:
    def made(config: Config, dtype: str) -> list[Tensor]:
        size = config.get("head_dim", default) or _head_dim(config)
        return _rotary(prefix, size // 2)

    return made


def _gemma2(config: Config, dtype: str) -> list[Tensor]:
    return [Tensor("embed_tokens.embed_scale", (), dtype), *_rotary("rotary_emb", config.get("head_dim", 256) // 2)]


def _qwen25_vl(config: Config, dtype: str) -> list[Tensor]:
    text, vision = config.get("text_config") or config, config.get("vision_config", {})
    seen = vision.get("hidden_size", 3584) // vision.get("num_heads", 16) // 4
    return _rotary("model.visual.rotary_pos_emb", seen) + _rotary(
        "model.language_model.rotary_emb", _head_dim(text) // 2
    )


_PLAIN = ClassFacts()
_WAN = ClassFacts(float32=("rope", "time_embedder", "scale_shift_table", "norm1", "norm2", "norm3"), made=_wan_rope)
_T5 = ClassFacts(
    float32_under_half=("wo",),
    ties=(("shared.weight", "encoder.embed_tokens.weight"),),
    tables=("shared.weight", "encoder.embed_tokens.weight"),
)
_BN = ("bn.running_mean", "bn.running_var", "bn.num_batches_tracked")
_LATENTS = ("latents_mean", "latents_std")
_QWEN25_FILES = (
    ("visual.", "model.visual."),
    ("model.layers.", "model.language_model.layers."),
    ("model.embed_tokens.", "model.language_model.embed_tokens."),
    ("model.norm.", "model.language_model.norm."),
)
_NOTHING_SPECIAL = """
AutoencoderKL AutoencoderKLWan AutoencoderKLQwenImage AutoencoderKLHunyuanVideo AutoencoderKLHunyuanVideo15
AutoencoderDC FluxTransformer2DModel Flux2Transformer2DModel QwenImageTransformer2DModel ZImageTransformer2DModel
UNet2DConditionModel LTXVideoTransformer3DModel HunyuanVideo15Transformer3DModel SanaTransformer2DModel
"""

_FACTS: Mapping[str, ClassFacts] = {
    **dict.fromkeys(_NOTHING_SPECIAL.split(), _PLAIN),
    "AutoencoderKLFlux2": ClassFacts(buffers=_BN),
    "AutoencoderKLLTXVideo": ClassFacts(buffers=_LATENTS),
    "PixArtTransformer2DModel": ClassFacts(made=_grid_positions),
    "SD3Transformer2DModel": ClassFacts(buffers=("pos_embed.pos_embed",)),
    "CosmosTransformer3DModel": ClassFacts(float32=("learnable_pos_embed",)),
    "WanTransformer3DModel": _WAN,
    "WanVACETransformer3DModel": _WAN,
    "SkyReelsV2Transformer3DModel": _WAN,
    "CLIPTextModel": ClassFacts(
        made=_positions("embeddings.position_ids"),
        tables=("embeddings.token_embedding.weight", "embeddings.position_embedding.weight"),
        renames=(("text_model.", ""),),
    ),
    "CLIPTextModelWithProjection": ClassFacts(
        made=_positions("text_model.embeddings.position_ids"),
        tables=("text_model.embeddings.token_embedding.weight", "text_model.embeddings.position_embedding.weight"),
    ),
    "CLIPVisionModel": ClassFacts(
        made=_patches("embeddings.position_ids", 1),
        tables=("embeddings.position_embedding.weight",),
        renames=(("vision_model.", ""),),
    ),
    "CLIPVisionModelWithProjection": ClassFacts(
        made=_patches("vision_model.embeddings.position_ids", 1),
        tables=("vision_model.embeddings.position_embedding.weight",),
    ),
    "StableDiffusionSafetyChecker": ClassFacts(
        made=_patches("vision_model.embeddings.position_ids", 1, "vision_config"),
        renames=(("vision_model.vision_model.", "vision_model."),),
    ),
    "T5EncoderModel": _T5,
    "UMT5EncoderModel": _T5,
    "Gemma2Model": ClassFacts(made=_gemma2, renames=(("model.", ""),)),
    "Qwen3Model": ClassFacts(
        made=_text_rotary("rotary_emb", 128), tables=("embed_tokens.weight",), renames=(("model.", ""),)
    ),
    "Qwen3ForCausalLM": ClassFacts(
        made=_text_rotary("model.rotary_emb", 128),
        ties=(("model.embed_tokens.weight", "lm_head.weight"),),
        tie_key="tie_word_embeddings",
        tables=("model.embed_tokens.weight",),
    ),
    "LlamaModel": ClassFacts(
        made=_text_rotary("rotary_emb"), tables=("embed_tokens.weight",), renames=(("model.", ""),)
    ),
    "Qwen2_5_VLTextModel": ClassFacts(
        made=_text_rotary("rotary_emb"),
        tables=("embed_tokens.weight",),
        renames=(("model.language_model.", ""), ("model.", "")),
    ),
    "Qwen2_5_VLForConditionalGeneration": ClassFacts(
        made=_qwen25_vl,
        ties=(("model.language_model.embed_tokens.weight", "lm_head.weight"),),
        tie_key="tie_word_embeddings",
        tables=("model.language_model.embed_tokens.weight",),
        renames=_QWEN25_FILES,
    ),
}
