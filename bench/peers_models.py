"""Tiny pipelines that stand for real ones: cut in width and depth, on machines scaled to match. Imports torch.

The pipelines are those of the tests with deeper and wider denoisers and text encoders, in the real proportion to each
other. A machine is scaled so that the bus keeps its speed, arithmetic makes the denoiser's TFLOP per streamed GB the
real one, memory holds the same share of the pipeline, and launches take the same share of the time.
"""

import importlib
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch

from framework.paths import ROOT
from framework.platforms.hardware import GIB, Efficiency, HardwareProfile, load_hardware

ENDLESS_GBPS = 1e9  # of device memory: only arithmetic counts


@dataclass(frozen=True, slots=True)
class Model:
    """A real model and what stands for it here.

    `denoiser_gb` are its bfloat16 weights, `tflop_per_gb` one call's arithmetic for each of them, `depth` the share of
    its layers that the tiny one has, `steps` those of a request. Guidance is off: a second pass doubles everything.
    """

    name: str
    tiny: str
    config: str
    denoiser: str
    denoiser_gb: float
    tflop_per_gb: float
    depth: float
    steps: int
    passes: int
    deepen: Callable[[Any], dict[str, Any]]
    call: Mapping[str, Any]
    words: tuple[str, ...]
    image: bool = True


def build(model: Model) -> Any:
    """Return the pipeline of `model` with random weights, in eval mode."""
    use_tests()
    pipeline = importlib.import_module("tiny_pipelines").build(model.tiny)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        parts = model.deepen(pipeline)
    made = type(pipeline)(**{**pipeline.components, **parts})
    for component in made.components.values():
        if isinstance(component, torch.nn.Module):
            component.eval().requires_grad_(False)
    made.set_progress_bar_config(disable=True)
    return made


def use_tests() -> None:
    """Let the builders of the tests be found."""
    tests = str(ROOT / "tests")
    if tests not in sys.path:
        sys.path.insert(0, tests)


def save(model: Model, folder: Path) -> Path:
    """Write the pipeline of `model` as a diffusers folder and return it."""
    build(model).save_pretrained(folder)
    return folder


def scaled(model: Model, hardware: str, tiny_bytes: int, tflop: float) -> HardwareProfile:
    """Return the machine `hardware` for a denoiser of `tiny_bytes` whose call takes `tflop`."""
    real = load_hardware(hardware)
    scale = model.denoiser_gb * 1e9 / tiny_bytes
    tflops = real.bf16_tflops * (tflop / (tiny_bytes / 1e9)) / model.tflop_per_gb
    share = real.efficiency.matmul
    return replace(
        real,
        memory_gib=real.capacity_bytes / scale / GIB,
        reserve_gib=0.0,
        bf16_tflops=tflops,
        fp32_tflops=tflops,
        memory_gbps=ENDLESS_GBPS,
        launch_us=real.launch_us / (scale * model.depth),
        efficiency=Efficiency(matmul=share, attention=share, conv=share),
    )


def with_memory(profile: HardwareProfile, size_bytes: int) -> HardwareProfile:
    """Return the machine with exactly `size_bytes` of memory."""
    return replace(profile, memory_gib=(size_bytes + 0.5) / GIB, reserve_gib=0.0)


def again(module: Any, **changes: Any) -> Any:
    """A diffusers or transformers model like `module` with another config."""
    if hasattr(module, "from_config"):
        return type(module).from_config({**module.config, **changes})
    return type(module)(type(module.config)(**{**module.config.to_dict(), **changes}))


def _wan(pipeline: Any) -> dict[str, Any]:
    wide = {"num_attention_heads": 2, "attention_head_dim": 32, "ffn_dim": 176, "num_layers": 12, "text_dim": 64}
    encoder = again(pipeline.text_encoder, d_model=64, d_kv=16, d_ff=160, num_layers=6)
    return {"transformer": again(pipeline.transformer, **wide), "text_encoder": encoder}


def _flux(pipeline: Any) -> dict[str, Any]:
    wide = {"attention_head_dim": 24, "axes_dims_rope": [8, 8, 8], "joint_attention_dim": 64}
    depth = {"num_layers": 8, "num_single_layers": 16}
    encoder = again(pipeline.text_encoder_2, d_model=64, d_kv=16, d_ff=160, num_layers=10)
    return {"transformer": again(pipeline.transformer, **wide, **depth), "text_encoder_2": encoder}


def _qwen(pipeline: Any) -> dict[str, Any]:
    wide = {"attention_head_dim": 24, "axes_dims_rope": (8, 8, 8), "joint_attention_dim": 64, "num_layers": 16}
    config = pipeline.text_encoder.config.to_dict()
    text = {**config["text_config"], "hidden_size": 64, "intermediate_size": 192, "num_hidden_layers": 10}
    text |= {"num_attention_heads": 4, "num_key_value_heads": 4, "layer_types": None}
    text |= {"rope_scaling": {"mrope_section": [2, 3, 3], "rope_type": "default", "type": "default"}}
    vision = {**config["vision_config"], "out_hidden_size": 64}
    encoder = again(pipeline.text_encoder, text_config=text, vision_config=vision, hidden_size=64)
    return {"transformer": again(pipeline.transformer, **wide), "text_encoder": encoder}


def _sdxl(pipeline: Any) -> dict[str, Any]:
    second = again(pipeline.text_encoder_2, hidden_size=64, intermediate_size=256, num_hidden_layers=24)
    wide = {"block_out_channels": (16, 32, 64), "layers_per_block": 2, "transformer_layers_per_block": (1, 2, 10)}
    unet = again(pipeline.unet, **wide, cross_attention_dim=96)
    return {"unet": unet, "text_encoder_2": second}


_VIDEO = {"height": 32, "width": 32, "num_frames": 9}
_PICTURE = {"height": 16, "width": 16}
MODELS: Mapping[str, Model] = {
    model.name: model
    for model in (
        Model(
            name="wan_14b",
            tiny="wan21",
            config="wan21_14b",
            denoiser="transformer",
            denoiser_gb=28.58,
            tflop_per_gb=59.0,
            depth=0.3,
            steps=40,
            passes=1,
            deepen=_wan,
            call={**_VIDEO, "guidance_scale": 1.0, "negative_prompt": "bad", "max_sequence_length": 32},
            words=(),
            image=False,
        ),
        Model(
            name="flux1_dev",
            tiny="flux",
            config="flux1_dev",
            denoiser="transformer",
            denoiser_gb=23.80,
            tflop_per_gb=3.1,
            depth=0.42,
            steps=28,
            passes=1,
            deepen=_flux,
            call={**_PICTURE, "guidance_scale": 3.5, "max_sequence_length": 16},
            words=(),
        ),
        Model(
            name="qwen_image",
            tiny="qwen_image",
            config="qwen_image",
            denoiser="transformer",
            denoiser_gb=40.86,
            tflop_per_gb=1.7,
            depth=16 / 60,
            steps=50,
            passes=1,
            deepen=_qwen,
            call={**_PICTURE, "true_cfg_scale": 1.0, "negative_prompt": " ", "max_sequence_length": 64},
            words=("request.guidance_scale=1",),
        ),
        Model(
            name="sdxl",
            tiny="sdxl",
            config="sdxl",
            denoiser="unet",
            denoiser_gb=5.13,
            tflop_per_gb=1.3,
            depth=1.0,
            steps=50,
            passes=1,
            deepen=_sdxl,
            call={**_PICTURE, "guidance_scale": 1.0, "negative_prompt": "bad"},
            words=("pipeline.model.variant=null",),
        ),
    )
}
