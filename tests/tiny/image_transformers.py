"""Qwen-Image, its editors, Z-Image and Sana: one transformer, one text encoder each. Imports diffusers in functions."""

from typing import Any

import torch
from tiny.encoders import gemma2, picture_processor, qwen3, qwen25_vl
from tiny.stable_diffusion import kl_vae
from tiny.tokenizers import gemma_tokenizer, qwen_tokenizer

_SIZES = {"prompt": "a cat", "height": 32, "width": 32, "num_inference_steps": 2}
QWEN_CALL = {**_SIZES, "negative_prompt": " ", "true_cfg_scale": 3.0, "max_sequence_length": 256}  # bytes: a long head
ZIMAGE_CALL = {**_SIZES, "negative_prompt": "bad", "guidance_scale": 3.0, "max_sequence_length": 128}
SANA_CALL = {
    **_SIZES,
    "negative_prompt": "",
    "max_sequence_length": 32,
    "complex_human_instruction": None,
    "use_resolution_binning": False,
}


def qwen_image() -> Any:
    from diffusers import QwenImagePipeline

    return QwenImagePipeline(**_qwen_parts(qwen_tokenizer()))


def qwen_image_edit() -> Any:
    from diffusers import QwenImageEditPipeline

    return QwenImageEditPipeline(**_seeing_parts())


def qwen_image_edit_plus() -> Any:
    from diffusers import QwenImageEditPlusPipeline

    return QwenImageEditPlusPipeline(**_seeing_parts())


def _seeing_parts() -> dict[str, Any]:
    tokenizer = qwen_tokenizer(("<|vision_start|>", "<|vision_end|>", "<|image_pad|>", "<|video_pad|>"))
    return {**_qwen_parts(tokenizer), "processor": picture_processor(tokenizer)}


def _qwen_parts(tokenizer: Any) -> dict[str, Any]:
    from diffusers import AutoencoderKLQwenImage, FlowMatchEulerDiscreteScheduler, QwenImageTransformer2DModel

    vae = AutoencoderKLQwenImage(
        base_dim=4,
        z_dim=4,
        dim_mult=[1, 2, 2],
        num_res_blocks=1,
        temperal_downsample=[False, True],
        latents_mean=[0.0] * 4,
        latents_std=[1.0] * 4,
    )
    transformer = QwenImageTransformer2DModel(
        patch_size=2,
        in_channels=16,
        out_channels=4,
        num_layers=6,
        attention_head_dim=16,
        num_attention_heads=2,
        joint_attention_dim=16,
        guidance_embeds=False,
        axes_dims_rope=(8, 4, 4),
    )
    return {
        "scheduler": FlowMatchEulerDiscreteScheduler(use_dynamic_shifting=True),
        "tokenizer": tokenizer,
        "text_encoder": qwen25_vl(tokenizer),
        "vae": vae,
        "transformer": transformer,
    }


def zimage() -> Any:
    """Its parameters for padding are uninitialised memory in the class, so they are set here."""
    from diffusers import FlowMatchEulerDiscreteScheduler, ZImagePipeline, ZImageTransformer2DModel

    tokenizer = qwen_tokenizer()
    transformer = ZImageTransformer2DModel(
        all_patch_size=(2,),
        all_f_patch_size=(1,),
        in_channels=16,
        dim=32,
        n_layers=6,
        n_refiner_layers=2,
        n_heads=2,
        n_kv_heads=2,
        qk_norm=True,
        cap_feat_dim=16,
        rope_theta=256.0,
        t_scale=1000.0,
        axes_dims=[8, 4, 4],
        axes_lens=[512, 32, 32],
    )
    with torch.no_grad():
        transformer.x_pad_token.fill_(0.01)
        transformer.cap_pad_token.fill_(0.01)
    return ZImagePipeline(
        scheduler=FlowMatchEulerDiscreteScheduler(),
        vae=kl_vae(16, scaling_factor=0.3611, shift_factor=0.1159),
        text_encoder=qwen3(len(tokenizer)),
        tokenizer=tokenizer,
        transformer=transformer,
    )


def sana() -> Any:
    from diffusers import AutoencoderDC, FlowMatchEulerDiscreteScheduler, SanaPipeline, SanaTransformer2DModel

    tokenizer = gemma_tokenizer()
    vae = AutoencoderDC(
        in_channels=3,
        latent_channels=4,
        attention_head_dim=2,
        encoder_block_types=("ResBlock", "EfficientViTBlock"),
        decoder_block_types=("ResBlock", "EfficientViTBlock"),
        encoder_block_out_channels=(8, 8),
        decoder_block_out_channels=(8, 8),
        encoder_qkv_multiscales=((), (5,)),
        decoder_qkv_multiscales=((), (5,)),
        encoder_layers_per_block=(1, 1),
        decoder_layers_per_block=(1, 1),
        downsample_block_type="conv",
        upsample_block_type="interpolate",
        decoder_norm_types="rms_norm",
        decoder_act_fns="silu",
        scaling_factor=0.41407,
    )
    transformer = SanaTransformer2DModel(
        patch_size=1,
        in_channels=4,
        out_channels=4,
        num_layers=6,
        num_attention_heads=2,
        attention_head_dim=4,
        num_cross_attention_heads=2,
        cross_attention_head_dim=4,
        cross_attention_dim=8,
        caption_channels=8,
        sample_size=32,
    )
    return SanaPipeline(
        tokenizer=tokenizer,
        text_encoder=gemma2(len(tokenizer)),
        vae=vae,
        transformer=transformer,
        scheduler=FlowMatchEulerDiscreteScheduler(shift=3.0),
    )
