"""CogVideoX, HunyuanVideo 1.0 and AnimateDiff: videos without a family. Imports diffusers inside its functions."""

from typing import Any

from tiny.encoders import clip_text, t5
from tiny.stable_diffusion import BETAS, kl_vae, unet
from tiny.tokenizers import clip_tokenizer, llama_tokenizer, t5_tokenizer

_SIZES = {"prompt": "a cat", "height": 32, "width": 32, "num_frames": 9, "num_inference_steps": 2}
COGVIDEOX_CALL = {**_SIZES, "negative_prompt": "bad", "guidance_scale": 3.0, "max_sequence_length": 16}
HUNYUAN_CALL = {
    **_SIZES,
    "guidance_scale": 6.0,
    "max_sequence_length": 32,
    "prompt_template": {"template": "{}", "crop_start": 0},
}
ANIMATEDIFF_CALL = {**_SIZES, "num_frames": 4, "negative_prompt": "bad", "guidance_scale": 3.0}


def cogvideox() -> Any:
    from diffusers import (
        AutoencoderKLCogVideoX,
        CogVideoXDDIMScheduler,
        CogVideoXPipeline,
        CogVideoXTransformer3DModel,
    )

    transformer = CogVideoXTransformer3DModel(
        num_attention_heads=4,
        attention_head_dim=8,
        in_channels=4,
        out_channels=4,
        time_embed_dim=2,
        text_embed_dim=32,
        num_layers=6,
        sample_width=4,
        sample_height=4,
        sample_frames=9,
        patch_size=2,
        temporal_compression_ratio=4,
        max_text_seq_length=16,
    )
    vae = AutoencoderKLCogVideoX(
        down_block_types=("CogVideoXDownBlock3D",) * 4,
        up_block_types=("CogVideoXUpBlock3D",) * 4,
        block_out_channels=(8, 8, 8, 8),
        latent_channels=4,
        layers_per_block=1,
        norm_num_groups=2,
        temporal_compression_ratio=4,
    )
    return CogVideoXPipeline(
        tokenizer=t5_tokenizer(),
        text_encoder=t5(),
        vae=vae,
        transformer=transformer,
        scheduler=CogVideoXDDIMScheduler(),
    )


def hunyuan_video() -> Any:
    """A language model for the text and CLIP for the pooled vector."""
    from diffusers import (
        AutoencoderKLHunyuanVideo,
        FlowMatchEulerDiscreteScheduler,
        HunyuanVideoPipeline,
        HunyuanVideoTransformer3DModel,
    )

    tokenizer, tokenizer_2 = llama_tokenizer(), clip_tokenizer()
    transformer = HunyuanVideoTransformer3DModel(
        in_channels=4,
        out_channels=4,
        num_attention_heads=2,
        attention_head_dim=10,
        num_layers=3,
        num_single_layers=3,
        num_refiner_layers=1,
        patch_size=1,
        patch_size_t=1,
        guidance_embeds=True,
        text_embed_dim=16,
        pooled_projection_dim=32,
        rope_axes_dim=(2, 4, 4),
    )
    vae = AutoencoderKLHunyuanVideo(
        latent_channels=4,
        down_block_types=("HunyuanVideoDownBlock3D",) * 4,
        up_block_types=("HunyuanVideoUpBlock3D",) * 4,
        block_out_channels=(8, 8, 8, 8),
        layers_per_block=1,
        norm_num_groups=4,
    )
    return HunyuanVideoPipeline(
        transformer=transformer,
        vae=vae,
        scheduler=FlowMatchEulerDiscreteScheduler(shift=7.0),
        text_encoder=_llama(len(tokenizer)),
        tokenizer=tokenizer,
        text_encoder_2=clip_text(len(tokenizer_2)),
        tokenizer_2=tokenizer_2,
    )


def _llama(vocab_size: int) -> Any:
    from transformers import LlamaConfig, LlamaModel

    config = LlamaConfig(
        vocab_size=vocab_size,
        hidden_size=16,
        intermediate_size=37,
        num_attention_heads=4,
        num_hidden_layers=4,
        bos_token_id=0,
        eos_token_id=1,
        pad_token_id=1,
    )
    return LlamaModel(config)


def animatediff() -> Any:
    """The motion adapter's weights go into the denoiser when the pipeline is made; it is never called itself."""
    from diffusers import AnimateDiffPipeline, DDIMScheduler, MotionAdapter

    tokenizer = clip_tokenizer()
    adapter = MotionAdapter(
        block_out_channels=(8, 16, 16),
        motion_layers_per_block=1,
        motion_norm_num_groups=4,
        motion_num_attention_heads=2,
    )
    return AnimateDiffPipeline(
        vae=kl_vae(4),
        text_encoder=clip_text(len(tokenizer)),
        tokenizer=tokenizer,
        unet=unet(cross_attention_dim=32, attention_head_dim=4),
        motion_adapter=adapter,
        scheduler=DDIMScheduler(clip_sample=False, **BETAS),
    )
