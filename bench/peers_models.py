"""Tiny pipelines that stand for real ones: cut in width and depth, on machines scaled to match. Imports torch.

The pipelines are those of the tests with deeper and wider denoisers and text encoders (`bench.peers_tiny`). A machine
is scaled so that the bus keeps its speed, arithmetic makes the denoiser's TFLOP per streamed GB the real one, memory
holds the same share of the pipeline, and launches take the same share of the time.
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

    `denoiser_gb` are its weights, `tflop_per_gb` one call's arithmetic for each of them, `activations` what a call's
    activations take beside them, all at its config's default request. `depth` is the share of its launches that the
    tiny one has. Guidance is off: `steps` are those of a request, twice as many where each has two calls.
    """

    name: str
    tiny: str
    config: str
    denoiser: str
    denoiser_gb: float
    tflop_per_gb: float
    activations: float
    depth: float
    steps: int
    deepen: Callable[[Any], dict[str, Any]]
    call: Mapping[str, Any]
    words: tuple[str, ...] = ()
    passes: int = 1
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
