"""Chroma, Lumina 2, PixArt Alpha and Sigma: pictures from one text encoder. Imports diffusers inside its functions."""

from typing import Any

from tiny.encoders import gemma2, t5
from tiny.stable_diffusion import kl_vae
from tiny.tokenizers import gemma_tokenizer, t5_tokenizer

_SIZES = {"prompt": "a cat", "negative_prompt": "bad", "height": 32, "width": 32, "num_inference_steps": 2}
CHROMA_CALL = {**_SIZES, "guidance_scale": 3.0, "max_sequence_length": 32}
LUMINA_CALL = {**_SIZES, "guidance_scale": 3.0, "system_prompt": "Draw:"}
_AS_IT_IS = {"use_resolution_binning": False, "clean_caption": False}
PIXART_CALL = {**_SIZES, "guidance_scale": 3.0, "max_sequence_length": 32, **_AS_IT_IS}
SHIFTED_VAE = {"shift_factor": 0.0609, "scaling_factor": 1.5035, "use_quant_conv": False, "use_post_quant_conv": False}


def chroma() -> Any:
    """FLUX.1 without CLIP: what guides its blocks is made by a small network, the approximator."""
    from diffusers import ChromaPipeline, ChromaTransformer2DModel, FlowMatchEulerDiscreteScheduler

    transformer = ChromaTransformer2DModel(
        patch_size=1,
        in_channels=16,
        num_layers=3,
        num_single_layers=4,
        attention_head_dim=16,
        num_attention_heads=2,
        joint_attention_dim=32,
        axes_dims_rope=[4, 4, 8],
        approximator_hidden_dim=32,
        approximator_layers=1,
        approximator_num_channels=16,
    )
    return ChromaPipeline(
        scheduler=FlowMatchEulerDiscreteScheduler(),
        vae=kl_vae(4, **SHIFTED_VAE),
        text_encoder=t5(),
        tokenizer=t5_tokenizer(),
        transformer=transformer,
    )


def lumina2() -> Any:
    from diffusers import FlowMatchEulerDiscreteScheduler, Lumina2Pipeline, Lumina2Transformer2DModel

    tokenizer = gemma_tokenizer()
    transformer = Lumina2Transformer2DModel(
        sample_size=4,
        patch_size=2,
        in_channels=4,
        hidden_size=16,
        num_layers=6,
        num_refiner_layers=1,
        num_attention_heads=2,
        num_kv_heads=2,
        multiple_of=16,
        ffn_dim_multiplier=None,
        axes_dim_rope=[4, 2, 2],
        axes_lens=[300, 64, 64],
        cap_feat_dim=8,
    )
    return Lumina2Pipeline(
        transformer=transformer,
        scheduler=FlowMatchEulerDiscreteScheduler(),
        vae=kl_vae(4, **SHIFTED_VAE),
        text_encoder=gemma2(len(tokenizer)),
        tokenizer=tokenizer,
    )


def pixart_alpha() -> Any:
    from diffusers import PixArtAlphaPipeline

    return PixArtAlphaPipeline(**_pixart_parts())


def pixart_sigma() -> Any:
    from diffusers import PixArtSigmaPipeline

    return PixArtSigmaPipeline(**_pixart_parts())


def _pixart_parts() -> dict[str, Any]:
    """Its last half of channels is a learned variance, which the pipelines drop."""
    from diffusers import DPMSolverMultistepScheduler, PixArtTransformer2DModel

    transformer = PixArtTransformer2DModel(
        sample_size=16,
        num_layers=6,
        patch_size=2,
        attention_head_dim=8,
        num_attention_heads=3,
        caption_channels=32,
        in_channels=4,
        cross_attention_dim=24,
        out_channels=8,
        norm_type="ada_norm_single",
        norm_elementwise_affine=False,
        use_additional_conditions=False,
    )
    return {
        "tokenizer": t5_tokenizer(),
        "text_encoder": t5(),
        "vae": kl_vae(4),
        "transformer": transformer,
        "scheduler": DPMSolverMultistepScheduler(),
    }
