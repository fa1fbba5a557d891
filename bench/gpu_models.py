"""Pipelines in real layer shapes with random weights, cut in depth, for a GPU of 40 GB and more. Imports torch.

FLUX.1, Wan 14B and Qwen-Image with a few layers of their transformers, the whole SDXL UNet, T5-XXL and Qwen2.5-VL cut,
the real VAEs. Quick ones are those of `peers_tiny`.
"""

import importlib
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from bench.peers_models import Model, use_tests
from bench.peers_tiny import MODELS, again

SPREAD = 0.02
BLOCK = 1 << 24
"""Numbers that are drawn; larger weights repeat them."""

T5 = {"d_model": 4096, "d_kv": 64, "d_ff": 10240, "num_heads": 64, "num_layers": 4}
VIDEO_VAE = {"base_dim": 96, "z_dim": 16, "dim_mult": [1, 2, 4, 4], "num_res_blocks": 2}
AXES = [16, 56, 56]


class Unfilled(TorchDispatchMode):
    """Inside it, filling a tensor with random numbers costs nothing and does nothing."""

    SKIPPED = (torch.ops.aten.normal_.default, torch.ops.aten.uniform_.default)

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return args[0] if func in self.SKIPPED else func(*args, **(kwargs or {}))


def build_large(model: Model, dtype: torch.dtype = torch.bfloat16) -> Any:
    """Return the pipeline of a model of `LARGE`, weights drawn again and again from one block of numbers."""
    use_tests()
    pipeline = importlib.import_module("tiny_pipelines").build(model.tiny)
    with Unfilled():
        parts = model.deepen(pipeline)
    made = type(pipeline)(**{**pipeline.components, **parts})
    noise = torch.randn(BLOCK, generator=torch.Generator().manual_seed(0)).mul_(SPREAD).to(dtype)
    for part in made.components.values():
        if isinstance(part, torch.nn.Module):
            fill(part.eval().requires_grad_(False).to(dtype), noise)
    made.set_progress_bar_config(disable=True)
    return made


def fill(module: torch.nn.Module, noise: torch.Tensor) -> None:
    """Fill matrices with `noise`, vectors with 1 (scales) or 0 (biases)."""
    for name, parameter in module.named_parameters():
        if parameter.dim() < 2:
            parameter.fill_(0.0 if name.endswith("bias") else 1.0)
            continue
        flat = parameter.view(-1)
        for begin in range(0, flat.numel(), noise.numel()):
            part = flat[begin : begin + noise.numel()]
            part.copy_(noise[: part.numel()])


def _kl_vae(vae: Any, latent_channels: int) -> Any:
    blocks = {"down_block_types": ("DownEncoderBlock2D",) * 4, "up_block_types": ("UpDecoderBlock2D",) * 4}
    wide = {"block_out_channels": (128, 256, 512, 512), "layers_per_block": 2, "norm_num_groups": 32}
    return again(vae, **blocks, **wide, latent_channels=latent_channels, sample_size=1024)


def _flux(pipeline: Any) -> dict[str, Any]:
    wide = {"num_attention_heads": 24, "attention_head_dim": 128, "axes_dims_rope": AXES, "in_channels": 64}
    depth = {"num_layers": 3, "num_single_layers": 6, "joint_attention_dim": 4096}
    return {
        "transformer": again(pipeline.transformer, **wide, **depth),
        "text_encoder_2": again(pipeline.text_encoder_2, **T5),
        "vae": _kl_vae(pipeline.vae, 16),
    }


def _wan(pipeline: Any) -> dict[str, Any]:
    wide = {"num_attention_heads": 40, "attention_head_dim": 128, "ffn_dim": 13824, "text_dim": 4096}
    return {
        "transformer": again(pipeline.transformer, **wide, num_layers=4, rope_max_seq_len=1024),
        "text_encoder": again(pipeline.text_encoder, **T5),
        "vae": again(pipeline.vae, **VIDEO_VAE, temperal_downsample=[False, True, True]),
    }


def _qwen(pipeline: Any) -> dict[str, Any]:
    wide = {"num_attention_heads": 24, "attention_head_dim": 128, "axes_dims_rope": AXES, "joint_attention_dim": 3584}
    config = pipeline.text_encoder.config.to_dict()
    text = {**config["text_config"], "hidden_size": 3584, "intermediate_size": 18944, "num_hidden_layers": 3}
    text |= {"num_attention_heads": 28, "num_key_value_heads": 4, "layer_types": None}
    text |= {"rope_scaling": {"mrope_section": [16, 24, 24], "rope_type": "default", "type": "default"}}
    vision = {**config["vision_config"], "out_hidden_size": 3584}
    means = {"latents_mean": [0.0] * 16, "latents_std": [1.0] * 16, "temperal_downsample": [False, True, True]}
    channels = {"in_channels": 64, "out_channels": 16}
    return {
        "transformer": again(pipeline.transformer, **wide, **channels, num_layers=5),
        "text_encoder": again(pipeline.text_encoder, text_config=text, vision_config=vision, hidden_size=3584),
        "vae": again(pipeline.vae, **VIDEO_VAE, **means),
    }


def _sdxl(pipeline: Any) -> dict[str, Any]:
    first = {"hidden_size": 768, "intermediate_size": 3072, "num_attention_heads": 12, "num_hidden_layers": 12}
    second = {"hidden_size": 1280, "intermediate_size": 5120, "num_attention_heads": 20, "num_hidden_layers": 32}
    unet = {
        "sample_size": 128,
        "block_out_channels": (320, 640, 1280),
        "layers_per_block": 2,
        "transformer_layers_per_block": (1, 2, 10),
        "attention_head_dim": (5, 10, 20),
        "cross_attention_dim": 2048,
        "addition_time_embed_dim": 256,
        "projection_class_embeddings_input_dim": 2816,
        "norm_num_groups": 32,
    }
    return {
        "unet": again(pipeline.unet, **unet),
        "text_encoder": again(pipeline.text_encoder, **first),
        "text_encoder_2": again(pipeline.text_encoder_2, **second, projection_dim=1280),
        "vae": _kl_vae(pipeline.vae, 4),
    }


_PICTURE = {"height": 1024, "width": 1024}
_VIDEO = {"height": 480, "width": 832, "num_frames": 33}
_SHAPES = {
    "flux1_dev": (_flux, {**_PICTURE, "max_sequence_length": 512}),
    "wan_14b": (_wan, {**_VIDEO, "max_sequence_length": 512}),
    "qwen_image": (_qwen, {**_PICTURE, "max_sequence_length": 512}),
    "sdxl": (_sdxl, _PICTURE),
}
LARGE: Mapping[str, Model] = {
    name: replace(MODELS[name], deepen=deepen, call={**MODELS[name].call, **call})
    for name, (deepen, call) in _SHAPES.items()
}
