"""FLUX.1 (double and single blocks), schnell, Kontext and FLUX.2 Klein. Imports diffusers inside its functions."""

from typing import Any

from tiny.encoders import clip_text, qwen3, t5
from tiny.stable_diffusion import kl_vae
from tiny.tokenizers import clip_tokenizer, qwen_tokenizer, t5_tokenizer

FLUX_CALL = {"prompt": "a cat", "height": 32, "width": 32, "num_inference_steps": 2, "max_sequence_length": 32}
DEEP_KLEIN_CALL = {**FLUX_CALL, "guidance_scale": 4.0, "max_sequence_length": 64}
KLEIN_CALL = {**DEEP_KLEIN_CALL, "text_encoder_out_layers": [1, 2, 3]}


def flux() -> Any:
    """Six layers in two block lists of different size, as the real one has them."""
    from diffusers import FluxPipeline

    return FluxPipeline(**_flux_parts(guidance_embeds=True))


def flux_schnell() -> Any:
    """Distilled without guidance."""
    from diffusers import FluxPipeline

    return FluxPipeline(**_flux_parts(guidance_embeds=False))


def flux_kontext() -> Any:
    from diffusers import FluxKontextPipeline

    return FluxKontextPipeline(**_flux_parts(guidance_embeds=True))


def _flux_parts(guidance_embeds: bool) -> dict[str, Any]:
    from diffusers import FlowMatchEulerDiscreteScheduler, FluxTransformer2DModel

    tokenizer = clip_tokenizer()
    transformer = FluxTransformer2DModel(
        patch_size=1,
        in_channels=16,
        num_layers=3,
        num_single_layers=4,
        attention_head_dim=16,
        num_attention_heads=2,
        joint_attention_dim=32,
        pooled_projection_dim=32,
        axes_dims_rope=[4, 4, 8],
        guidance_embeds=guidance_embeds,
    )
    vae = kl_vae(4, shift_factor=0.0609, scaling_factor=1.5035, use_quant_conv=False, use_post_quant_conv=False)
    return {
        "scheduler": FlowMatchEulerDiscreteScheduler(use_dynamic_shifting=True),
        "vae": vae,
        "text_encoder": clip_text(len(tokenizer)),
        "tokenizer": tokenizer,
        "text_encoder_2": t5(),
        "tokenizer_2": t5_tokenizer(),
        "transformer": transformer,
    }


def flux2_klein(num_encoder_layers: int = 4) -> Any:
    """Not distilled: it encodes an empty negative text and runs the transformer twice a step."""
    from diffusers import (
        AutoencoderKLFlux2,
        FlowMatchEulerDiscreteScheduler,
        Flux2KleinPipeline,
        Flux2Transformer2DModel,
    )

    tokenizer = qwen_tokenizer()
    transformer = Flux2Transformer2DModel(
        patch_size=1,
        in_channels=16,
        num_layers=2,
        num_single_layers=5,
        attention_head_dim=16,
        num_attention_heads=2,
        joint_attention_dim=48,  # three layers of the encoder side by side
        timestep_guidance_channels=32,
        axes_dims_rope=(4, 4, 4, 4),
        guidance_embeds=False,
    )
    vae = AutoencoderKLFlux2(
        down_block_types=("DownEncoderBlock2D",) * 2,
        up_block_types=("UpDecoderBlock2D",) * 2,
        block_out_channels=(8, 8),
        layers_per_block=1,
        latent_channels=4,
        norm_num_groups=4,
        sample_size=32,
    )
    return Flux2KleinPipeline(
        scheduler=FlowMatchEulerDiscreteScheduler(use_dynamic_shifting=True),
        vae=vae,
        text_encoder=qwen3(len(tokenizer), num_layers=num_encoder_layers, causal=True),
        tokenizer=tokenizer,
        transformer=transformer,
        is_distilled=False,
    )


def flux2_klein_deep() -> Any:
    """An encoder with the layers that the pipeline reads where nobody says which: 9, 18 and 27."""
    return flux2_klein(num_encoder_layers=28)
