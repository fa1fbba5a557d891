"""Host cost of one streamed layer: ours on a platform that does nothing, beside diffusers and accelerate.

    python -m bench.hook_overhead [--rounds 30] [--json]

A model of 40 layers with 16 tensors each is called from one thread; the layers compute nothing, so all time is hooks,
swaps and bookkeeping. The figure is the fastest of the rounds, all variants in turn within each round of one run. The
goals are 1/15 of diffusers' group offload and 1/60 of accelerate's offload.
"""

import argparse
import json
import time
from collections.abc import Callable

import torch
from torch import Tensor, nn

from framework.memory.courier import Courier
from framework.memory.host_budget import HostMemory
from framework.memory.host_store import HostStore
from framework.memory.layers import find_stacks
from framework.memory.layerwise import attach_streamer
from framework.memory.pin_ledger import PinLedger
from framework.memory.policy import Knobs
from framework.memory.resources import Resources
from framework.platforms.cpu import CpuPlatform

NUM_LAYERS = 40
GOALS = {"diffusers group offload": 15, "accelerate offload": 60}


class Layer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.parts = nn.ModuleList(nn.Linear(8, 8) for _ in range(8))

    def forward(self, x: Tensor, y: Tensor | None = None) -> Tensor:
        return x


class Model(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(Layer() for _ in range(NUM_LAYERS))
        self.requires_grad_(False)

    def forward(self, x: Tensor, y: Tensor | None = None) -> Tensor:
        for block in self.blocks:
            x = block(x, y=y)
        return x


class NullPlatform(CpuPlatform):
    """Streams, events and pinned memory exist, and every call returns at once without doing anything."""

    kind = "null"
    overlaps = True
    pins = True
    unified = False

    def allocate_pinned(self, size_bytes: int) -> Tensor:
        return torch.empty(size_bytes, dtype=torch.uint8)

    def copy_async(self, dst: Tensor, src: Tensor, stream: object) -> None:
        """The copy itself is the bus's affair."""


def plain() -> Model:
    return Model()


def ours() -> Model:
    model = Model()
    platform = NullPlatform()
    plenty = HostMemory(2**40, 2**40)
    shared = Resources(Courier(platform), HostStore(platform, PinLedger(plenty)))
    stacks = find_stacks("transformer", model, ["blocks"])
    streamer = attach_streamer("transformer", model, Knobs((1,), (0,)), shared, stacks)
    streamer.start()
    streamer.wait()
    return model


def group_offload() -> Model:
    from diffusers.hooks import apply_group_offloading

    model, cpu = Model(), torch.device("cpu")
    apply_group_offloading(
        model, onload_device=cpu, offload_device=cpu, offload_type="block_level", num_blocks_per_group=1
    )
    return model


def accelerate_offload() -> Model:
    from accelerate.hooks import AlignDevicesHook, add_hook_to_module

    model = Model()
    for block in model.blocks:
        weights = {name: tensor.clone() for name, tensor in block.state_dict().items()}
        hook = AlignDevicesHook(execution_device="cpu", offload=True, place_submodules=True, weights_map=weights)
        add_hook_to_module(block, hook)
    return model


VARIANTS: dict[str, tuple[Callable[[], Model], int]] = {
    "plain call": (plain, 50),
    "ours": (ours, 50),
    "diffusers group offload": (group_offload, 5),
    "accelerate offload": (accelerate_offload, 2),
}


def measure(rounds: int) -> dict[str, float]:
    """Return the fastest round of each variant, in microseconds a layer."""
    x = torch.zeros(2, 8)
    models = {name: (build(), calls) for name, (build, calls) in VARIANTS.items()}
    best = dict.fromkeys(models, float("inf"))
    for _ in range(rounds):
        for name, (model, calls) in models.items():
            started = time.perf_counter()
            for _ in range(calls):
                model(x, y=x)
            best[name] = min(best[name], (time.perf_counter() - started) / calls / NUM_LAYERS * 1e6)
    return best


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=30)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    torch.set_num_threads(1)
    with torch.no_grad():
        best = measure(options.rounds)
    over = {name: value - best["plain call"] for name, value in best.items()}
    if options.json:
        print(json.dumps({"microseconds_per_layer": best, "over_plain_call": over}))
        return
    for name, value in best.items():
        print(f"{name:26s} {value:8.2f} us a layer")
    for name, goal in GOALS.items():
        ratio = best[name] / best["ours"]
        verdict = "met" if ratio >= goal else "missed"
        print(
            f"ours is 1/{ratio:.0f} of {name}; goal 1/{goal} {verdict} (hooks alone: 1/{over[name] / over['ours']:.0f})"
        )


if __name__ == "__main__":
    main()
