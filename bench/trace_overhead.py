"""What tracing costs the host, layer by layer: the same streamed steps with and without a tracer, in turn.

    python -m bench.trace_overhead [--rounds 15] [--json]

A model of 40 layers that compute next to nothing is called from one thread, on a platform that copies at once, so that
hooks, stamps and spans are all that tracing adds; processor time is counted, the fastest of the rounds of each kind.
The share is that of a layer of 5 ms, a short one: those of a 14B video model take 20 ms and more on the fastest card.
On cuda a stamp is the record of an event instead of a look at the clock, some microseconds each. The goal is under 1 %.
"""

import argparse
import json
import time
from contextlib import nullcontext
from typing import Any

import torch
from torch import Tensor, nn

from framework.memory.layers import find_stacks
from framework.memory.layerwise import attach_streamer
from framework.memory.policy import Knobs
from framework.memory.resources import make_resources
from framework.platforms.cpu import CpuPlatform
from framework.runtime import events
from framework.tracing.tracer import Tracer

NUM_LAYERS, STEPS = 40, 6
LAYER_S = 5e-3
GOAL = 0.01


class Model(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(nn.Linear(8, 8) for _ in range(NUM_LAYERS))
        self.requires_grad_(False)

    def forward(self, x: Tensor) -> Tensor:
        for block in self.blocks:
            x = block(x)
        return x


class StreamingPlatform(CpuPlatform):
    """A CPU with two streams by name, so that every hook of the streamer and of the tracer runs."""

    overlaps = True
    unified = False

    def make_stream(self, name: str) -> str:
        return name

    def current_stream(self) -> str:
        return "compute"

    def record_event(self, stream: str) -> list[str]:
        return [stream]


def step_seconds(traced: bool) -> float:
    """Return the processor time of one step, after the first, which learns the order of layers."""
    platform = StreamingPlatform()
    tracer = Tracer() if traced else None
    used = tracer.watch(platform) if tracer is not None else platform
    model = Model()
    stacks = find_stacks("model", model, ("blocks",))
    knobs = Knobs(prefetch=(1,), resident=(0,), policy="strided")
    streamer = attach_streamer("model", model, knobs, make_resources(used), stacks)
    watching: Any = nullcontext() if tracer is None else tracer.layers({"model": model}, {"model": ("blocks",)})
    x = torch.zeros(1, 8)
    taken = []
    with torch.inference_mode(), watching:
        if tracer is not None:
            tracer(events.StageStarted(0, "denoise", "denoise", 0, 1))
        streamer.start()
        streamer.wait()
        for step in range(STEPS):
            started = time.thread_time()
            model(x)
            if tracer is not None:
                tracer(events.StepDone(0, "denoise", step + 1, STEPS))
            taken.append(time.thread_time() - started)
        streamer.finish()
    return min(taken[1:])


def measure(rounds: int) -> dict[str, float]:
    """Return seconds of a step with and without a tracer, what that is a layer, and the share of `LAYER_S`."""
    plain, traced = [], []
    for _ in range(rounds):
        plain.append(step_seconds(False))
        traced.append(step_seconds(True))
    layer_s = (min(traced) - min(plain)) / NUM_LAYERS
    return {"plain_s": min(plain), "traced_s": min(traced), "layer_s": layer_s, "share": layer_s / LAYER_S}


def main() -> None:
    """Print the figures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    figures = measure(arguments.rounds)
    if arguments.json:
        print(json.dumps({"goal": GOAL, **figures}))
        return
    print(f"plain   {figures['plain_s'] * 1e3:8.2f} ms a step\ntraced  {figures['traced_s'] * 1e3:8.2f} ms a step")
    cost_us, share = figures["layer_s"] * 1e6, 100 * figures["share"]
    print(f"tracing costs {cost_us:.1f} us a layer, {share:.2f} % of one that takes {LAYER_S * 1e3:.0f} ms; goal 1 %")


if __name__ == "__main__":
    main()
