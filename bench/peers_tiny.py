"""What stands for Wan 14B, FLUX.1 dev, Qwen-Image and SDXL in `peers_sim`. Imports torch.

Text encoders and denoisers are in the real proportion to each other; a call's activations take about the real share of
the denoiser. Sizes, arithmetic and activations of the real ones are what `plan` finds for the packaged configs.
"""

from collections.abc import Mapping
from typing import Any

from bench.peers_models import Model


def again(module: Any, **changes: Any) -> Any:
    """A diffusers or transformers model like `module` with another config."""
    if hasattr(module, "from_config"):
        return type(module).from_config({**module.config, **changes})
    return type(module)(type(module.config)(**{**module.config.to_dict(), **changes}))


def _wan(pipeline: Any) -> dict[str, Any]:
    """Patches of one pixel: more tokens beside what the VAE makes of them."""
    wide = {"num_attention_heads": 8, "attention_head_dim": 16, "ffn_dim": 352, "text_dim": 128}
    encoder = again(pipeline.text_encoder, d_model=128, d_kv=16, d_ff=320, num_layers=7)
    return {
        "transformer": again(pipeline.transformer, **wide, num_layers=12, patch_size=(1, 1, 1)),
        "text_encoder": encoder,
    }


def _flux(pipeline: Any) -> dict[str, Any]:
    wide = {"attention_head_dim": 24, "axes_dims_rope": [8, 8, 8], "joint_attention_dim": 64}
    depth = {"num_layers": 8, "num_single_layers": 16}
    encoder = again(pipeline.text_encoder_2, d_model=64, d_kv=16, d_ff=160, num_layers=14)
    return {"transformer": again(pipeline.transformer, **wide, **depth), "text_encoder_2": encoder}


def _qwen(pipeline: Any) -> dict[str, Any]:
    """Wide, for the table of its positions does not shrink; with the real tokens of its long template."""
    pipeline.tokenizer.add_tokens(QWEN_WORDS)
    wide = {"num_attention_heads": 8, "attention_head_dim": 16, "axes_dims_rope": (8, 4, 4)}
    depth = {"joint_attention_dim": 128, "num_layers": 16}
    config, words = pipeline.text_encoder.config.to_dict(), len(pipeline.tokenizer)
    text = {**config["text_config"], "hidden_size": 128, "intermediate_size": 512, "num_hidden_layers": 14}
    text |= {"num_attention_heads": 8, "num_key_value_heads": 8, "layer_types": None, "vocab_size": words}
    text |= {"rope_scaling": {"mrope_section": [2, 3, 3], "rope_type": "default", "type": "default"}}
    vision = {**config["vision_config"], "out_hidden_size": 128}
    both = {"text_config": text, "vision_config": vision, "hidden_size": 128, "vocab_size": words}
    encoder = again(pipeline.text_encoder, **both)
    return {"transformer": again(pipeline.transformer, **wide, **depth), "text_encoder": encoder}


def _sdxl(pipeline: Any) -> dict[str, Any]:
    second = again(pipeline.text_encoder_2, hidden_size=48, intermediate_size=192, num_hidden_layers=18)
    wide = {"block_out_channels": (16, 32, 64), "layers_per_block": 2, "transformer_layers_per_block": (1, 1, 2)}
    unet = again(pipeline.unet, **wide, cross_attention_dim=80)
    return {"unet": unet, "text_encoder_2": second, "vae": again(pipeline.vae, block_out_channels=(32, 32))}


QWEN_WORDS = [
    "system",
    "Describe",
    " the",
    " image",
    " by",
    " detailing",
    " color",
    " shape",
    " size",
    " texture",
    " quantity",
    " text",
    " spatial",
    " relationships",
    " of",
    " objects",
    " and",
    " background",
    "user",
    "assistant",
]
_VIDEO = {"height": 64, "width": 64, "num_frames": 9}
_PICTURE = {"height": 32, "width": 32}
MODELS: Mapping[str, Model] = {
    model.name: model
    for model in (
        Model(
            name="wan_14b",
            tiny="wan21",
            config="wan21_14b",
            denoiser="transformer",
            denoiser_gb=28.64,
            tflop_per_gb=58.6,
            activations=0.130,
            depth=12 / 40,
            steps=100,
            deepen=_wan,
            call={**_VIDEO, "guidance_scale": 1.0, "negative_prompt": "bad", "max_sequence_length": 32},
            image=False,
        ),
        Model(
            name="flux1_dev",
            tiny="flux",
            config="flux1_dev",
            denoiser="transformer",
            denoiser_gb=23.80,
            tflop_per_gb=3.13,
            activations=0.020,
            depth=24 / 57,
            steps=50,
            deepen=_flux,
            call={"height": 16, "width": 16, "guidance_scale": 3.5, "max_sequence_length": 16},
        ),
        Model(
            name="qwen_image",
            tiny="qwen_image",
            config="qwen_image",
            denoiser="transformer",
            denoiser_gb=40.86,
            tflop_per_gb=2.95,
            activations=0.015,
            depth=16 / 60,
            steps=100,
            deepen=_qwen,
            # texts no longer than they are: plans go by the longest
            call={**_PICTURE, "max_sequence_length": 16, "true_cfg_scale": 1.0, "negative_prompt": " "},
            words=("request.guidance_scale=1",),
        ),
        Model(
            name="sdxl",
            tiny="sdxl",
            config="sdxl",
            denoiser="unet",
            denoiser_gb=5.13,
            tflop_per_gb=2.63,
            activations=0.064,
            depth=0.29,
            steps=50,
            deepen=_sdxl,
            call={"height": 48, "width": 48, "guidance_scale": 1.0, "negative_prompt": "bad"},
            words=("pipeline.model.variant=null",),
        ),
    )
}
