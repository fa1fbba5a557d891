"""Copies hide behind compute: virtual time on `sim` against the recurrence of a ring."""

import dataclasses

import memory_builders as build
import pytest
import torch
from torch import Tensor, nn

from framework.platforms.hardware import load_hardware
from framework.platforms.sim.backend import install
from framework.platforms.sim.testing import assert_idle
from framework.platforms.sim.world import World, start

NUM_LAYERS, STEPS, WIDTH = 8, 12, 64


class Heavy(nn.Module):
    """Layers whose compute is `repeats` matrix products of their weight."""

    def __init__(self, repeats: int) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(nn.Linear(WIDTH, WIDTH, bias=False) for _ in range(NUM_LAYERS))
        for block in self.blocks:
            block.register_forward_hook(lambda module, args, out: self.more(module, out))
        self.repeats = repeats

    def more(self, module: nn.Module, x: Tensor) -> Tensor:
        for _ in range(self.repeats - 1):
            x = x @ module.weight
        return x

    def forward(self, x: Tensor) -> Tensor:
        for block in self.blocks:
            x = block(x)
        return x


def world(gbps: float) -> World:
    install()
    profile = load_hardware("rtx_4090")
    return start(World(dataclasses.replace(profile, h2d_pinned_gbps=gbps, launch_us=0.001)))


def measure(machine: World, model: nn.Module, streamer: object) -> float:
    """Virtual seconds of a use after a first one."""
    x = torch.ones(4, WIDTH)
    build.use(streamer, model, x, STEPS)  # type: ignore[arg-type]
    machine.synchronize()
    machine.moves.clear()
    begun = machine.host_s
    build.use(streamer, model, x, STEPS)  # type: ignore[arg-type]
    machine.synchronize()
    return machine.host_s - begun


def times(gbps: float, prefetch: int, resident: int = 0) -> tuple[float, float, float]:
    """Virtual seconds of a use: streamed, computing alone, and of all its copies."""
    machine = world(gbps)
    model = Heavy(8).requires_grad_(False)
    streamer = build.stream(model, build.resources(), NUM_LAYERS, NUM_LAYERS, lifetime="retained")
    compute = measure(machine, model, streamer)
    streamer.detach()
    machine = world(gbps)
    streamer = build.stream(model, build.resources(), prefetch, resident)
    seconds = measure(machine, model, streamer)
    copies = [move for move in machine.moves if move.layer is not None and str(move.layer).startswith("blocks")]
    copying = sum(move.end_s - move.start_s for move in copies)
    streamer.detach()
    del streamer, model
    assert_idle(machine)
    return seconds, compute, copying


def recurrence(compute: float, copying: float, slots: int) -> float:
    """start(i) = max(done(i-1), ready(i)), copy(k) = max(copy(k-1), slot free)."""
    count = NUM_LAYERS * STEPS
    each_compute, each_copy = compute / count, copying / count
    done, ready = [0.0] * count, 0.0
    for i in range(count):
        free = done[i - slots] if i >= slots else 0.0
        ready = max(ready, free) + each_copy
        done[i] = max(done[i - 1] if i else 0.0, ready) + each_compute
    return done[-1]


@pytest.mark.parametrize("prefetch", [1, 3])
@pytest.mark.parametrize("gbps", [20.0, 100.0, 400.0])
def test_time_is_that_of_the_recurrence(gbps: float, prefetch: int) -> None:
    seconds, compute, copying = times(gbps, prefetch)
    assert seconds <= 1.03 * recurrence(compute, copying, prefetch + 1)
    assert seconds >= max(compute, copying) * 0.999


def test_where_compute_covers_the_copies_streaming_costs_one_percent() -> None:
    seconds, compute, copying = times(gbps=400.0, prefetch=1)
    assert copying < compute
    assert seconds <= 1.01 * compute + copying / (NUM_LAYERS * STEPS)


def test_without_prefetch_copies_and_compute_take_turns() -> None:
    seconds, compute, copying = times(gbps=100.0, prefetch=0)
    assert seconds >= 0.95 * (compute + copying)
