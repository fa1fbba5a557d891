"""HunyuanVideo 1.5: a chat model, a byte encoder for quoted text, a guider. Imports diffusers in functions."""

from typing import Any

from tiny.encoders import QWEN_SETTINGS, T5_SETTINGS
from tiny.tokenizers import qwen_tokenizer

CALL = {"prompt": 'a sign that says "cat"', "height": 32, "width": 32, "num_frames": 5, "num_inference_steps": 2}


def _text_model(vocab_size: int) -> Any:
    from transformers import Qwen2_5_VLTextModel
    from transformers.models.qwen2_5_vl.configuration_qwen2_5_vl import Qwen2_5_VLTextConfig

    rope = {"mrope_section": [1, 1, 2], "rope_type": "default", "rope_theta": 1e6}
    config = Qwen2_5_VLTextConfig(num_hidden_layers=4, vocab_size=vocab_size, rope_parameters=rope, **QWEN_SETTINGS)
    return Qwen2_5_VLTextModel(config)


def _byte_encoder() -> Any:
    from transformers import T5Config, T5EncoderModel

    return T5EncoderModel(T5Config(**{**T5_SETTINGS, "vocab_size": 384}))


def hunyuan_video15() -> Any:
    from diffusers import (
        AutoencoderKLHunyuanVideo15,
        ClassifierFreeGuidance,
        FlowMatchEulerDiscreteScheduler,
        HunyuanVideo15Pipeline,
        HunyuanVideo15Transformer3DModel,
    )
    from transformers import ByT5Tokenizer

    tokenizer = qwen_tokenizer()
    vae = AutoencoderKLHunyuanVideo15(
        latent_channels=4,
        block_out_channels=(16, 16, 16),
        layers_per_block=1,
        spatial_compression_ratio=4,
        temporal_compression_ratio=4,
    )
    transformer = HunyuanVideo15Transformer3DModel(
        in_channels=9,
        out_channels=4,
        num_attention_heads=2,
        attention_head_dim=16,
        num_layers=6,
        num_refiner_layers=1,
        text_embed_dim=16,
        text_embed_2_dim=32,
        image_embed_dim=16,
        rope_axes_dim=(4, 6, 6),
        task_type="t2v",
    )
    return HunyuanVideo15Pipeline(
        text_encoder=_text_model(len(tokenizer)),
        tokenizer=tokenizer,
        transformer=transformer,
        vae=vae,
        scheduler=FlowMatchEulerDiscreteScheduler(shift=5.0),
        text_encoder_2=_byte_encoder(),
        tokenizer_2=ByT5Tokenizer(),
        guider=ClassifierFreeGuidance(guidance_scale=6.0),
    )
