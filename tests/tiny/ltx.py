"""LTX-Video. Imports diffusers inside its functions."""

from typing import Any

from tiny.encoders import t5
from tiny.tokenizers import t5_tokenizer

CALL = {
    "prompt": "a cat",
    "negative_prompt": "",
    "height": 32,
    "width": 32,
    "num_frames": 9,
    "num_inference_steps": 2,
    "max_sequence_length": 32,
}


def ltx_vae(**options: Any) -> Any:
    from diffusers import AutoencoderKLLTXVideo

    settings: dict[str, Any] = {
        "latent_channels": 8,
        "block_out_channels": (8,) * 4,
        "decoder_block_out_channels": (8,) * 4,
        "layers_per_block": (1,) * 5,
        "decoder_layers_per_block": (1,) * 5,
        "spatio_temporal_scaling": (True, True, False, False),
        "decoder_spatio_temporal_scaling": (True, True, False, False),
        "decoder_inject_noise": (False,) * 5,
        "upsample_residual": (False,) * 4,
        "upsample_factor": (1,) * 4,
        "timestep_conditioning": False,
        "patch_size": 1,
        "patch_size_t": 1,
        "encoder_causal": True,
        "decoder_causal": False,
    }
    return AutoencoderKLLTXVideo(**{**settings, **options})


def ltx_timed() -> Any:
    """A VAE that is told a time and mixes in noise when it decodes, as from version 0.9.1 on."""
    return ltx(timestep_conditioning=True)


def ltx(**vae: Any) -> Any:
    from diffusers import FlowMatchEulerDiscreteScheduler, LTXPipeline, LTXVideoTransformer3DModel

    transformer = LTXVideoTransformer3DModel(
        in_channels=8,
        out_channels=8,
        patch_size=1,
        patch_size_t=1,
        num_attention_heads=4,
        attention_head_dim=8,
        cross_attention_dim=32,
        num_layers=6,
        caption_channels=32,
    )
    return LTXPipeline(
        scheduler=FlowMatchEulerDiscreteScheduler(use_dynamic_shifting=True),
        vae=ltx_vae(**vae),
        text_encoder=t5(),
        tokenizer=t5_tokenizer(),
        transformer=transformer,
    )
