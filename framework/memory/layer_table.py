"""Where the layers of known model classes are: class name to dotted paths of its block lists. No torch.

A path may also name a single block. Alternatives after `|` are for other versions of the library. YAML's
`components.NAME.layers` beats this table.
"""

_DIFFUSERS = {
    "AllegroTransformer3DModel": "transformer_blocks",
    "AuraFlowTransformer2DModel": "joint_transformer_blocks single_transformer_blocks",
    "ChromaTransformer2DModel": "transformer_blocks single_transformer_blocks",
    "CogVideoXTransformer3DModel": "transformer_blocks",
    "CogView4Transformer2DModel": "transformer_blocks",
    "CosmosTransformer3DModel": "transformer_blocks",
    "ControlNetModel": "down_blocks mid_block",
    "FluxControlNetModel": "transformer_blocks single_transformer_blocks",
    "FluxTransformer2DModel": "transformer_blocks single_transformer_blocks",
    "Flux2Transformer2DModel": "transformer_blocks single_transformer_blocks",
    "GlmImageTransformer2DModel": "transformer_blocks",
    "HunyuanVideo15Transformer3DModel": "transformer_blocks",
    "HunyuanVideoTransformer3DModel": "context_embedder.token_refiner.refiner_blocks transformer_blocks "
    "single_transformer_blocks",
    "LTX2VideoTransformer3DModel": "transformer_blocks",
    "LTXVideoTransformer3DModel": "transformer_blocks",
    "Lumina2Transformer2DModel": "noise_refiner context_refiner layers",
    "MochiTransformer3DModel": "transformer_blocks",
    "MotionAdapter": "down_blocks up_blocks",
    "PixArtTransformer2DModel": "transformer_blocks",
    "QwenImageTransformer2DModel": "transformer_blocks",
    "SD3Transformer2DModel": "transformer_blocks",
    "SanaTransformer2DModel": "transformer_blocks",
    "SanaVideoTransformer3DModel": "transformer_blocks",
    "UNet2DConditionModel": "down_blocks mid_block up_blocks",
    "UNetMotionModel": "down_blocks mid_block up_blocks",
    "WanTransformer3DModel": "blocks",
    "WanVACETransformer3DModel": "vace_blocks blocks",
    "ZImageTransformer2DModel": "noise_refiner context_refiner layers",
}
_VAE = "encoder.down_blocks encoder.mid_block decoder.mid_block decoder.up_blocks"
_VAE_CLASSES = """
AutoencoderKL AutoencoderKLCogVideoX AutoencoderKLFlux2 AutoencoderKLHunyuanVideo AutoencoderKLHunyuanVideo15
AutoencoderKLLTXVideo AutoencoderKLLTX2Video AutoencoderKLQwenImage AutoencoderKLWan
"""
_VAES = {
    **dict.fromkeys(_VAE_CLASSES.split(), _VAE),
    "AutoencoderDC": "encoder.down_blocks decoder.up_blocks",
    "AutoencoderKLMochi": "encoder.down_blocks decoder.up_blocks",
}
_TRANSFORMERS = {
    "CLIPTextModel": "text_model.encoder.layers|encoder.layers",
    "CLIPTextModelWithProjection": "text_model.encoder.layers|encoder.layers",
    "CLIPVisionModel": "vision_model.encoder.layers|encoder.layers",
    "CLIPVisionModelWithProjection": "vision_model.encoder.layers|encoder.layers",
    "Gemma2Model": "layers",
    "Gemma3ForConditionalGeneration": "model.language_model.layers "
    "model.vision_tower.vision_model.encoder.layers|model.vision_tower.encoder.layers",
    "GlmModel": "layers",
    "LlamaForCausalLM": "model.layers",
    "LlamaModel": "layers",
    "Mistral3ForConditionalGeneration": "model.language_model.layers model.vision_tower.transformer.layers",
    "Qwen2_5_VLForConditionalGeneration": "model.visual.blocks model.language_model.layers",
    "Qwen2_5_VLTextModel": "layers",
    "Qwen3ForCausalLM": "model.layers",
    "Qwen3Model": "layers",
    "Qwen3VLForConditionalGeneration": "model.visual.blocks model.language_model.layers",
    "SiglipVisionModel": "vision_model.encoder.layers|encoder.layers",
    "T5EncoderModel": "encoder.block",
    "UMT5EncoderModel": "encoder.block",
}
_IN_PIPELINES = {"StableDiffusionSafetyChecker": "vision_model.vision_model.encoder.layers|vision_model.encoder.layers"}
_PATHS = {**_DIFFUSERS, **_VAES, **_TRANSFORMERS, **_IN_PIPELINES}


def layer_paths(class_name: str) -> tuple[str, ...]:
    """Return the block-list paths of a model class, in call order; empty where the class is not known."""
    return tuple(_PATHS.get(class_name, "").split())


def known_classes() -> tuple[str, ...]:
    """Names of the classes in the table, sorted."""
    return tuple(sorted(_PATHS))
