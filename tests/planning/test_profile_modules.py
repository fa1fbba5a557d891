"""Modules built from a config alone have the tensors that loading would give: names, shapes, dtypes and ties."""

import json
from collections.abc import Callable
from pathlib import Path

import diffusers
import pytest
import torch
import transformers

from framework.planning.profile_modules import shape_module
from framework.planning.profile_tensor import Memory
from framework.platforms.sim.backend import install


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize(
    ("pipeline", "component", "class_name"),
    [
        ("wan22", "transformer", "WanTransformer3DModel"),
        ("wan22", "vae", "AutoencoderKLWan"),
        ("wan22", "text_encoder", "UMT5EncoderModel"),
        ("flux", "text_encoder_2", "T5EncoderModel"),
        ("qwen_image", "text_encoder", "Qwen2_5_VLForConditionalGeneration"),
    ],
)
def test_tensors_are_those_of_loading(
    pipeline: str, component: str, class_name: str, dtype: torch.dtype, tiny_folder: Callable[[str], Path]
) -> None:
    install()
    folder = tiny_folder(pipeline) / component
    cls = getattr(diffusers, class_name, None) or getattr(transformers, class_name)
    loaded = cls.from_pretrained(folder, dtype=dtype)
    memory = Memory()
    built = shape_module(cls, json.loads((folder / "config.json").read_text()), dtype, memory, component)
    for ours, theirs in ((built.named_parameters(), loaded.named_parameters()),):
        assert {n: (t.shape, t.dtype) for n, t in ours} == {n: (t.shape, t.dtype) for n, t in theirs}
    buffers = {n: (t.shape, t.dtype) for n, t in built.named_buffers()}
    assert buffers == {n: (t.shape, t.dtype) for n, t in loaded.named_buffers()}
    assert memory.live_bytes == 0, "weights are the planner's to charge"
