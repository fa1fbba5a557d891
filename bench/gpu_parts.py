"""The single questions of `bench.gpu`: equality, bandwidth, streams, compilations. Imports torch."""

import os
import shutil
import subprocess
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from bench.gpu_run import Device, Knobs, run_ours
from bench.peers_models import Model as Pipeline
from bench.peers_models import save
from framework.memory.layers import find_stacks
from framework.memory.layerwise import attach_streamer
from framework.memory.policy import Knobs as Layers
from framework.memory.resources import make_resources
from framework.platforms import Platform
from framework.platforms.cpu import CpuPlatform

PLANS: Mapping[str, Knobs] = {
    "component-offload": ("component-offload", None, None),
    "layerwise, no prefetch": ("layerwise-offload", "0", "0"),
    "layerwise": ("layerwise-offload", "1", "0"),
    "layerwise, prefetch 3": ("layerwise-offload", "3", "0"),
    "layerwise, half resident": ("layerwise-offload", "1", "50%"),
}
SANITIZER_S = 90


class Block(nn.Module):
    """Ten square products."""

    def __init__(self, width: int, dtype: torch.dtype) -> None:
        super().__init__()
        self.parts = nn.ModuleList(nn.Linear(width, width, bias=False, dtype=dtype, device="meta") for _ in range(10))
        self.to_empty(device="cpu")

    def forward(self, x: Tensor) -> Tensor:
        for part in self.parts:
            x = part(x)
        return x


class Model(nn.Module):
    def __init__(self, layers: int, width: int, dtype: torch.dtype) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(Block(width, dtype) for _ in range(layers))
        self.requires_grad_(False)
        for parameter in self.parameters():
            parameter.zero_()

    def forward(self, x: Tensor) -> Tensor:
        for block in self.blocks:
            x = block(x)
        return x


def equality(device: Device, folder: Path, models: Iterable[Pipeline]) -> dict[str, Any]:
    """Compare tiny pipelines under every kind of placement with everything resident, bit by bit."""
    cases, wrong = 0, []
    for model in models:
        place = save(model, folder / f"tiny_{model.name}")
        _, expected = run_ours(device, model, "resident", place, ("resident", None, None))
        for plan, knobs in PLANS.items():
            _, made = run_ours(device, model, plan, place, knobs)
            cases += 1
            if not torch.equal(made, expected):
                wrong.append(f"{model.name}, {plan}")
    return {"cases": cases, "different": wrong, "deterministic": torch.are_deterministic_algorithms_enabled()}


def streamed_share(device: Device, pinned_gbps: float, quick: bool) -> dict[str, Any]:
    """Return the share of the pinned rate that a step reaches that has nothing to compute: layers of 0.5 GB."""
    layers, width = (6, 96) if quick else (12, 5120)
    dtype = torch.float32 if quick else torch.bfloat16
    model = Model(layers, width, dtype)
    resources = make_resources(device.platform)
    streamer = attach_streamer("model", model, Layers((1,), (0,)), resources, find_stacks("model", model, ("blocks",)))
    x = torch.zeros(16, width, dtype=dtype, device=device.platform.device)
    passes, seconds, moved = 3, 0.0, 0
    with torch.no_grad():
        for _ in range(2):  # the first use teaches the order
            streamer.start()
            streamer.wait()
            began, before = device.now(), sum(resources.courier.moved.values())
            for _ in range(passes):
                model(x)
            seconds, moved = device.now() - began, sum(resources.courier.moved.values()) - before
            streamer.finish()
    streamer.detach()
    rate = moved / seconds / 1e9
    return {"streamed_gbps": rate, "share": rate / pinned_gbps, "moved_bytes": moved, "goal": 0.95}


def compilations(device: Device) -> dict[str, Any]:
    """Count graphs that are compiled for blocks that are resident, and for the same ones streamed over three uses."""
    platform: Platform = CpuPlatform() if device.simulated else device.platform
    return {"resident": _graphs(platform, False), "streamed, three uses": _graphs(platform, True)}


def _graphs(platform: Platform, streamed: bool) -> int:
    torch._dynamo.reset()
    compiled: list[Any] = []

    def backend(graph: Any, inputs: Any) -> Any:
        compiled.append(graph)
        return graph.forward

    model = Model(4, 64, torch.float32)
    streamer = None
    if streamed:
        stacks = find_stacks("model", model, ("blocks",))
        streamer = attach_streamer("model", model, Layers((1,), (0,)), make_resources(platform), stacks)
    else:
        model.to(platform.device)
    for block in model.blocks:
        block.forward = torch.compile(block.forward, backend=backend, dynamic=False)
    x = torch.ones(2, 64, device=platform.device)
    with torch.no_grad():
        for _ in range(3 if streamed else 1):
            if streamer is not None:
                streamer.start()
                streamer.wait()
            model(x)
            if streamer is not None:
                streamer.finish()
    torch._dynamo.reset()
    return len(compiled)


def sanitizers(device: Device) -> dict[str, Any]:
    """Run the equality part in a process of its own under what watches streams and memory; `sim` watches by itself."""
    if device.simulated:
        return {"simulated device, strict": {"rc": 0, "said": "every race raises"}}
    command = [sys.executable, "-m", "bench.gpu", "--device", "cuda", "--quick", "--parts", "a", "--json"]
    found = {"torch.cuda._sanitizer": _run(command, {"TORCH_CUDA_SANITIZER": "1"})}
    tool = shutil.which("compute-sanitizer")
    if tool is not None:
        found["compute-sanitizer memcheck"] = _run([tool, "--error-exitcode", "9", *command], {})
    return found


def _run(command: list[str], environment: Mapping[str, str]) -> dict[str, Any]:
    try:
        done = subprocess.run(
            command, env={**os.environ, **environment}, capture_output=True, text=True, timeout=SANITIZER_S
        )
    except subprocess.TimeoutExpired:
        return {"rc": None, "said": f"not done after {SANITIZER_S} s"}
    lines = [line for line in (done.stdout + done.stderr).splitlines() if "ERROR" in line or "Error" in line]
    return {"rc": done.returncode, "said": lines[-1] if lines else "nothing found"}
