"""Wan, text and image to video. Two experts differ in depth, so that calling the wrong one shows. Imports diffusers.

Image to video takes 36 channels: noise, a mask of 4, and the encoded first picture.
"""

from typing import Any

from tiny.encoders import clip_image_processor, clip_vision, umt5
from tiny.tokenizers import t5_tokenizer

CALL = {
    "prompt": "a cat",
    "negative_prompt": "bad",
    "height": 32,
    "width": 32,
    "num_frames": 9,
    "num_inference_steps": 3,
    "max_sequence_length": 32,
}


def wan_vae(**options: Any) -> Any:
    from diffusers import AutoencoderKLWan

    settings = {"base_dim": 3, "z_dim": 16, "dim_mult": [1, 1, 1, 1], "num_res_blocks": 1}
    return AutoencoderKLWan(**{**settings, "temperal_downsample": [False, True, True], **options})


def wan_transformer(num_layers: int, in_channels: int = 16, out_channels: int = 16, **options: Any) -> Any:
    from diffusers import WanTransformer3DModel

    return WanTransformer3DModel(
        patch_size=(1, 2, 2),
        num_attention_heads=2,
        attention_head_dim=12,
        in_channels=in_channels,
        out_channels=out_channels,
        text_dim=32,
        freq_dim=256,
        ffn_dim=32,
        num_layers=num_layers,
        cross_attn_norm=True,
        qk_norm="rms_norm_across_heads",
        rope_max_seq_len=32,
        **options,
    )


def wan_scheduler() -> Any:
    from diffusers import UniPCMultistepScheduler

    return UniPCMultistepScheduler(prediction_type="flow_prediction", use_flow_sigmas=True, flow_shift=3.0)


def _parts(**parts: Any) -> dict[str, Any]:
    shared = {"tokenizer": t5_tokenizer(), "text_encoder": umt5(), "scheduler": wan_scheduler()}
    return {**shared, "vae": wan_vae(), **parts}


def wan21() -> Any:
    """Wan 2.1: one denoiser."""
    from diffusers import WanPipeline

    return WanPipeline(**_parts(transformer=wan_transformer(6)))


def wan22() -> Any:
    """Wan 2.2: an expert of 6 layers above the boundary, one of 8 below it."""
    from diffusers import WanPipeline

    experts = {"transformer": wan_transformer(6), "transformer_2": wan_transformer(8)}
    return WanPipeline(**_parts(**experts, boundary_ratio=0.875))


def wan_ti2v() -> Any:
    """Wan 2.2 TI2V-5B: a time for each token and a VAE that halves space once more."""
    from diffusers import WanPipeline

    vae = wan_vae(
        z_dim=48,
        in_channels=12,
        out_channels=12,
        is_residual=True,
        patch_size=2,
        latents_mean=[0.0] * 48,
        latents_std=[1.0] * 48,
        scale_factor_spatial=16,
        scale_factor_temporal=4,
    )
    return WanPipeline(**_parts(transformer=wan_transformer(6, 48, 48), vae=vae, expand_timesteps=True))


def wan21_i2v() -> Any:
    """Wan 2.1 image to video: an image encoder feeds the denoiser beside the encoded picture."""
    from diffusers import WanImageToVideoPipeline

    transformer = wan_transformer(6, 36, image_dim=16, added_kv_proj_dim=24)
    images = {"image_encoder": clip_vision(), "image_processor": clip_image_processor()}
    return WanImageToVideoPipeline(**_parts(transformer=transformer, **images))


def wan22_i2v() -> Any:
    """Wan 2.2 image to video: two experts of 6 and 8 layers, no image encoder."""
    from diffusers import WanImageToVideoPipeline

    experts = {"transformer": wan_transformer(6, 36), "transformer_2": wan_transformer(8, 36)}
    return WanImageToVideoPipeline(**_parts(**experts, boundary_ratio=0.9))
