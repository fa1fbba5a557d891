"""Tiny pipelines with random weights, built without a hub: small in width, real in structure. Imports torch.

Two experts have different depth, so that calling the wrong one changes the number of layers that run.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

CHARACTERS = [chr(code) for code in range(33, 127)]


def t5_tokenizer() -> Any:
    """A character tokenizer: ids 0, 1, 2 are padding, end and unknown, as T5 expects."""
    from transformers import T5Tokenizer

    vocab = [("<pad>", 0.0), ("</s>", 0.0), ("<unk>", 0.0), ("▁", -2.0), *((c, -3.0) for c in CHARACTERS)]
    return T5Tokenizer(vocab=vocab, extra_ids=0, model_max_length=512)


def umt5() -> Any:
    from transformers import UMT5Config, UMT5EncoderModel

    config = UMT5Config(
        vocab_size=128,
        d_model=32,
        d_kv=8,
        d_ff=37,
        num_layers=2,
        num_heads=4,
        relative_attention_num_buckets=8,
        dropout_rate=0.0,
    )
    return UMT5EncoderModel(config)


def wan_vae(**options: Any) -> Any:
    from diffusers import AutoencoderKLWan

    settings = {"base_dim": 3, "z_dim": 16, "dim_mult": [1, 1, 1, 1], "num_res_blocks": 1}
    return AutoencoderKLWan(**{**settings, "temperal_downsample": [False, True, True], **options})


def wan_transformer(num_layers: int, channels: int = 16) -> Any:
    from diffusers import WanTransformer3DModel

    return WanTransformer3DModel(
        patch_size=(1, 2, 2),
        num_attention_heads=2,
        attention_head_dim=12,
        in_channels=channels,
        out_channels=channels,
        text_dim=32,
        freq_dim=256,
        ffn_dim=32,
        num_layers=num_layers,
        cross_attn_norm=True,
        qk_norm="rms_norm_across_heads",
        rope_max_seq_len=32,
    )


def wan_scheduler() -> Any:
    from diffusers import UniPCMultistepScheduler

    return UniPCMultistepScheduler(prediction_type="flow_prediction", use_flow_sigmas=True, flow_shift=3.0)


def _wan_pipeline(**parts: Any) -> Any:
    from diffusers import WanPipeline

    shared = {"tokenizer": t5_tokenizer(), "text_encoder": umt5(), "scheduler": wan_scheduler()}
    return WanPipeline(**{**shared, "vae": wan_vae(), **parts})


def wan21() -> Any:
    """Wan 2.1: one denoiser."""
    return _wan_pipeline(transformer=wan_transformer(2))


def wan22() -> Any:
    """Wan 2.2: an expert of 2 layers above the boundary, one of 3 below it."""
    return _wan_pipeline(transformer=wan_transformer(2), transformer_2=wan_transformer(3), boundary_ratio=0.875)


def wan_ti2v() -> Any:
    """Wan 2.2 TI2V-5B: a time for each token and a VAE that halves space once more."""
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
    return _wan_pipeline(transformer=wan_transformer(2, channels=48), vae=vae, expand_timesteps=True)


BUILDERS: dict[str, Callable[[], Any]] = {"wan21": wan21, "wan22": wan22, "wan_ti2v": wan_ti2v}


def build(name: str, seed: int = 0) -> Any:
    """Return the pipeline called `name`, in eval mode; `seed` fixes its weights."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        pipeline = BUILDERS[name]()
    for component in pipeline.components.values():
        if isinstance(component, torch.nn.Module):
            component.eval()
    return pipeline


def save(name: str, folder: Path) -> Path:
    """Write the pipeline called `name` as an ordinary diffusers folder and return the folder."""
    build(name).save_pretrained(folder)
    return folder
