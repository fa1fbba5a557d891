"""Stable Diffusion 3 with its three encoders. Imports diffusers inside its functions."""

from typing import Any

from tiny.encoders import clip_text, t5
from tiny.stable_diffusion import kl_vae
from tiny.tokenizers import clip_tokenizer, t5_tokenizer

CALL = {
    "prompt": "a cat",
    "negative_prompt": "bad",
    "height": 32,
    "width": 32,
    "num_inference_steps": 2,
    "max_sequence_length": 32,
}


def sd3() -> Any:
    """The joint width is T5's; both CLIPs side by side are cut to it here, and padded in the real one."""
    from diffusers import FlowMatchEulerDiscreteScheduler, SD3Transformer2DModel, StableDiffusion3Pipeline

    tokenizer = clip_tokenizer()
    transformer = SD3Transformer2DModel(
        sample_size=32,
        patch_size=1,
        in_channels=4,
        out_channels=4,
        num_layers=6,
        attention_head_dim=8,
        num_attention_heads=4,
        joint_attention_dim=32,
        caption_projection_dim=32,
        pooled_projection_dim=64,
        pos_embed_max_size=32,
        qk_norm="rms_norm",
    )
    return StableDiffusion3Pipeline(
        transformer=transformer,
        scheduler=FlowMatchEulerDiscreteScheduler(shift=3.0),
        vae=kl_vae(4, shift_factor=0.0609, scaling_factor=1.5035, use_quant_conv=False, use_post_quant_conv=False),
        text_encoder=clip_text(len(tokenizer), projection=True),
        tokenizer=tokenizer,
        text_encoder_2=clip_text(len(tokenizer), projection=True),
        tokenizer_2=clip_tokenizer(),
        text_encoder_3=t5(),
        tokenizer_3=t5_tokenizer(),
    )
