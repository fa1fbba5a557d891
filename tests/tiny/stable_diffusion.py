"""SD 1.5 and SDXL, and the KL autoencoder that others share. Imports diffusers inside its functions."""

from typing import Any

from tiny.encoders import clip_image_processor, clip_text
from tiny.tokenizers import clip_tokenizer

CALL = {"prompt": "a cat", "negative_prompt": "bad", "height": 32, "width": 32, "num_inference_steps": 3}
BETAS = {"beta_start": 0.00085, "beta_end": 0.012, "beta_schedule": "scaled_linear", "steps_offset": 1}


def kl_vae(latent_channels: int, **options: Any) -> Any:
    """An autoencoder that halves space once."""
    from diffusers import AutoencoderKL

    return AutoencoderKL(
        down_block_types=("DownEncoderBlock2D",) * 2,
        up_block_types=("UpDecoderBlock2D",) * 2,
        block_out_channels=(8, 8),
        layers_per_block=1,
        latent_channels=latent_channels,
        norm_num_groups=4,
        sample_size=32,
        **options,
    )


def unet(**options: Any) -> Any:
    """Three blocks down, three up: more parts than a prefetch of one or two reaches."""
    from diffusers import UNet2DConditionModel

    return UNet2DConditionModel(
        sample_size=16,
        block_out_channels=(8, 16, 16),
        layers_per_block=1,
        norm_num_groups=4,
        down_block_types=("DownBlock2D", "CrossAttnDownBlock2D", "CrossAttnDownBlock2D"),
        up_block_types=("CrossAttnUpBlock2D", "CrossAttnUpBlock2D", "UpBlock2D"),
        **options,
    )


def sd15() -> Any:
    from diffusers import DDIMScheduler, StableDiffusionPipeline

    tokenizer = clip_tokenizer()
    return StableDiffusionPipeline(
        vae=kl_vae(4),
        text_encoder=clip_text(len(tokenizer)),
        tokenizer=tokenizer,
        unet=unet(cross_attention_dim=32, attention_head_dim=4),
        scheduler=DDIMScheduler(clip_sample=False, **BETAS),
        safety_checker=None,
        feature_extractor=None,
        requires_safety_checker=False,
    )


def sd15_checked() -> Any:
    """With a safety checker that finds nothing."""
    return with_checker(sd15(), 2.0)


def with_checker(pipeline: Any, threshold: float) -> Any:
    """The pipeline with a tiny checker whose every concept lies above `threshold`, or none does."""
    from diffusers import StableDiffusionPipeline
    from diffusers.pipelines.stable_diffusion import StableDiffusionSafetyChecker
    from transformers import CLIPConfig

    vision = {"hidden_size": 16, "intermediate_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2}
    config = CLIPConfig(vision_config={**vision, "image_size": 32, "patch_size": 16}, projection_dim=16)
    checker = StableDiffusionSafetyChecker(config).eval()
    for weights in (checker.concept_embeds_weights, checker.special_care_embeds_weights):
        weights.data.fill_(threshold)
    parts = {**pipeline.components, "safety_checker": checker, "feature_extractor": clip_image_processor()}
    return StableDiffusionPipeline(**parts)


def sdxl() -> Any:
    from diffusers import EulerDiscreteScheduler, StableDiffusionXLPipeline

    tokenizer = clip_tokenizer()
    return StableDiffusionXLPipeline(
        vae=kl_vae(4),
        text_encoder=clip_text(len(tokenizer)),
        text_encoder_2=clip_text(len(tokenizer), projection=True),
        tokenizer=tokenizer,
        tokenizer_2=clip_tokenizer(),
        unet=unet(
            cross_attention_dim=64,
            attention_head_dim=(2, 4, 4),
            use_linear_projection=True,
            addition_embed_type="text_time",
            addition_time_embed_dim=8,
            transformer_layers_per_block=(1, 1, 2),
            projection_class_embeddings_input_dim=80,
        ),
        scheduler=EulerDiscreteScheduler(timestep_spacing="leading", **BETAS),
    )
