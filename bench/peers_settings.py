"""What users would pick instead of us: diffusers' and accelerate's own ways to place a pipeline. Imports torch."""

from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

import torch
from torch import nn

from bench.peers_models import Model

STEPS = 4
"""Of the request that is measured: the first two make up for what was loaded first, the last fetches nothing ahead."""
STEADY = 2
"""The step that is like all others."""
Enable: TypeAlias = Callable[[Any, torch.device], None]


def resident(pipeline: Any, device: torch.device) -> None:
    pipeline.to(device)


def model_offload(pipeline: Any, device: torch.device) -> None:
    pipeline.enable_model_cpu_offload(device=device)


def sequential_offload(pipeline: Any, device: torch.device) -> None:
    pipeline.enable_sequential_cpu_offload(device=device)


def group_offload(offload_type: str, **options: Any) -> Enable:
    """All components, one block a group where groups are blocks."""

    def enable(pipeline: Any, device: torch.device) -> None:
        blocks = {"num_blocks_per_group": 1} if offload_type == "block_level" else {}
        where = {"onload_device": device, "offload_device": torch.device("cpu")}
        pipeline.enable_group_offload(**where, offload_type=offload_type, **blocks, **options)

    return enable


def accelerate_half(pipeline: Any, device: torch.device) -> None:
    """accelerate's device map: every second layer of the denoiser stays, everything else comes and goes by itself."""
    from accelerate import cpu_offload, dispatch_model

    place = str(device)
    for name, part in pipeline.components.items():
        if not isinstance(part, nn.Module):
            continue
        if name not in ("transformer", "unet"):
            cpu_offload(part, device)
            continue
        lists = [(child, list(blocks)) for child, blocks in part.named_children() if isinstance(blocks, nn.ModuleList)]
        places = {f"{stack}.{i}": "cpu" if i % 2 else place for stack, blocks in lists for i in range(len(blocks))}
        others = [child for child, _ in part.named_children() if child not in dict(lists)]
        own = [child for child, _ in part.named_parameters(recurse=False)]
        places |= dict.fromkeys([*others, *own], place)
        dispatch_model(part, places, main_device=place, offload_buffers=True)


STREAM: Mapping[str, Any] = {"use_stream": True}
RECORD: Mapping[str, Any] = {"use_stream": True, "record_stream": True, "non_blocking": True}
PEERS: Mapping[str, Enable] = {
    "diffusers resident": resident,
    "diffusers model offload": model_offload,
    "diffusers sequential offload": sequential_offload,
    "diffusers group offload, blocks": group_offload("block_level"),
    "diffusers group offload, blocks, stream": group_offload("block_level", **STREAM),
    "diffusers group offload, blocks, stream, record_stream": group_offload("block_level", **RECORD),
    "diffusers group offload, leaves": group_offload("leaf_level"),
    "diffusers group offload, leaves, stream": group_offload("leaf_level", **STREAM),
    "diffusers group offload, leaves, stream, record_stream": group_offload("leaf_level", **RECORD),
    "accelerate, half of the layers resident": accelerate_half,
}


def call(pipeline: Any, model: Model, prompt: str, steps: int = STEPS, **more: Any) -> torch.Tensor:
    """Call diffusers' pipeline; returns its pictures as ours are: channels last."""
    generator = torch.Generator().manual_seed(0)
    output = pipeline(
        prompt=prompt, num_inference_steps=steps, generator=generator, output_type="pt", **model.call, **more
    )
    frames: torch.Tensor = output.frames if hasattr(output, "frames") else output.images
    return frames.movedim(-3, -1)
