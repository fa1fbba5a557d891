"""Virtual time: repeatable to the bit, near the closed form, and logged copy by copy."""

import dataclasses
import itertools

import pytest
import torch
from torch import nn

from framework.platforms.hardware import HardwareProfile, load_hardware
from framework.platforms.sim import World, start
from framework.platforms.sim.platform import SimPlatform

WIDTH = 64
LAYER_BYTES = WIDTH * WIDTH * 4
ROWS = 512
LAYER_FLOPS = 2 * ROWS * WIDTH * WIDTH


def profile(**changes: object) -> HardwareProfile:
    return dataclasses.replace(load_hardware("rtx_4090"), **changes)  # type: ignore[arg-type]


def balanced(compute_s: float = 1e-3, copy_s: float = 1e-3) -> HardwareProfile:
    """A machine on which one layer of the test takes these times."""
    base = load_hardware("rtx_4090")
    return profile(
        fp32_tflops=LAYER_FLOPS / compute_s / base.efficiency.matmul / 1e12,
        memory_gbps=1e6,
        h2d_pinned_gbps=LAYER_BYTES / copy_s / 1e9,
        launch_us=1.0,
    )


def stream_layers(platform: SimPlatform, num_layers: int, num_slots: int) -> float:
    """Run a stack through a ring of slots with prefetch; return the virtual seconds it took."""
    sources = []
    for _ in range(num_layers):
        source = platform.allocate_pinned(LAYER_BYTES)
        assert source is not None
        source.view(torch.float32).fill_(0.01)
        sources.append(source)
    ring = platform.reserve(num_slots * LAYER_BYTES)
    slots = [ring[i * LAYER_BYTES : (i + 1) * LAYER_BYTES] for i in range(num_slots)]
    x = torch.ones(ROWS, WIDTH, device="sim")
    compute, copying = platform.current_stream(), platform.make_stream("copy")
    platform.synchronize()
    begin = platform.world.host_s
    platform.wait_event(copying, platform.record_event(compute))
    done: list[object] = []
    ready: list[object] = []

    def fetch(index: int) -> None:
        if index >= num_slots:
            platform.wait_event(copying, done[index - num_slots])  # type: ignore[arg-type]
        platform.mark(component="stack", layer=index)
        platform.copy_async(slots[index % num_slots], sources[index], copying)
        ready.append(platform.record_event(copying))

    for index in range(min(num_slots, num_layers)):
        fetch(index)
    for index in range(num_layers):
        platform.wait_event(compute, ready[index])  # type: ignore[arg-type]
        x = nn.functional.linear(x, slots[index % num_slots].view(torch.float32).view(WIDTH, WIDTH))
        done.append(platform.record_event(compute))
        if index + num_slots < num_layers:
            fetch(index + num_slots)
    platform.synchronize()
    return platform.world.host_s - begin


def recurrence(num_layers: int, num_slots: int, compute_s: float, copy_s: float) -> float:
    """start(i) = max(done(i-1), ready(i)), copy(k) = max(copy(k-1), slot free)."""
    copied = [0.0] * num_layers
    done = [0.0] * num_layers
    for i in range(num_layers):
        free = done[i - num_slots] if i >= num_slots else 0.0
        copied[i] = max(copied[i - 1] if i else 0.0, free) + copy_s
        done[i] = max(done[i - 1] if i else 0.0, copied[i]) + compute_s
    return done[-1]


@pytest.mark.parametrize("num_slots", [1, 2, 4])
@pytest.mark.parametrize(("compute_s", "copy_s"), [(1e-3, 1e-3), (2e-3, 1e-3), (1e-3, 3e-3)])
def test_a_prefetching_loop_takes_what_the_recurrence_says(num_slots: int, compute_s: float, copy_s: float) -> None:
    start(World(balanced(compute_s, copy_s)))
    taken = stream_layers(SimPlatform(), 12, num_slots)
    assert taken == pytest.approx(recurrence(12, num_slots, compute_s, copy_s), rel=0.02)


def test_virtual_time_is_the_same_in_every_run() -> None:
    times = set()
    for _ in range(3):
        start(World(balanced()))
        times.add(stream_layers(SimPlatform(), 6, 2))
    assert len(times) == 1


def test_every_copy_is_logged_with_what_it_was_for() -> None:
    world = start(World(balanced()))
    platform = SimPlatform()
    platform.mark(stage="denoise", step=3)
    stream_layers(platform, 4, 2)
    platform.mark(component=None, layer=None)
    moves = [move for move in world.moves if move.component == "stack"]
    assert [move.layer for move in moves] == [0, 1, 2, 3]
    assert {(m.direction, m.size_bytes, m.stage, m.step, m.stream) for m in moves} == {
        ("h2d", LAYER_BYTES, "denoise", 3, "copy")
    }
    assert all(one.end_s <= other.start_s for one, other in itertools.pairwise(moves))
    torch.ones(1).to("sim")
    assert world.moves[-1].component is None


def test_two_streams_share_one_bus() -> None:
    start(World(balanced(copy_s=1e-3)))
    platform = SimPlatform()
    buffers = [platform.reserve(LAYER_BYTES) for _ in range(2)]
    source = platform.allocate_pinned(LAYER_BYTES)
    assert source is not None
    for buffer, name in zip(buffers, "ab", strict=True):
        platform.copy_async(buffer, source, platform.make_stream(name))
    platform.synchronize()
    assert platform.world.host_s == pytest.approx(2e-3, rel=0.02)


def test_a_slow_link_and_pageable_memory_take_longer() -> None:
    def seconds(slowdown: float, pinned: bool) -> float:
        world = start(World(profile(launch_us=0.0)))
        world.faults.link_slowdown = slowdown
        platform = SimPlatform()
        source = platform.allocate_pinned(1 << 20) if pinned else torch.ones(1 << 20, dtype=torch.uint8)
        assert source is not None
        platform.copy_async(platform.reserve(1 << 20), source, platform.current_stream())
        platform.synchronize()
        return world.host_s

    base = load_hardware("rtx_4090")
    assert seconds(1, True) == pytest.approx((1 << 20) / base.h2d_pinned_gbps / 1e9)
    assert seconds(4, True) == pytest.approx(4 * seconds(1, True))
    assert seconds(1, False) == pytest.approx((1 << 20) / base.h2d_pageable_gbps / 1e9)


def test_without_overlap_copies_take_time_from_kernels() -> None:
    def seconds(overlap: float) -> float:
        start(World(dataclasses.replace(balanced(), overlap=overlap)))
        return stream_layers(SimPlatform(), 8, 2)

    assert seconds(1.0) == pytest.approx(9e-3, rel=0.02)
    assert seconds(0.0) > 1.5 * seconds(1.0)


@pytest.mark.parametrize(
    ("kernel", "flops"),
    [
        (lambda x: x @ x, 2 * 64**3),
        (lambda x: torch.addmm(x, x, x), 2 * 64**3),
        (lambda x: torch.bmm(x[None], x[None]), 2 * 64**3),
        (lambda x: nn.functional.linear(x, x), 2 * 64**3),
    ],
)
def test_a_product_takes_its_arithmetic(kernel: object, flops: int) -> None:
    base = profile(launch_us=0.0, memory_gbps=1e9, fp32_tflops=1.0)
    world = start(World(base))
    x = torch.ones(64, 64, device="sim")
    before = world.host_s = world.device(0).current.time_s
    kernel(x)  # type: ignore[operator]
    assert world.device(0).current.time_s - before == pytest.approx(flops / 1e12 / base.efficiency.matmul, rel=1e-3)


def test_attention_and_convolutions_take_their_arithmetic() -> None:
    base = profile(launch_us=0.0, memory_gbps=1e9, fp32_tflops=1.0)
    world = start(World(base))
    stream = world.device(0).current
    q = torch.ones(1, 2, 32, 8, device="sim")
    before = stream.time_s
    nn.functional.scaled_dot_product_attention(q, q, q)
    assert stream.time_s - before == pytest.approx(4 * 2 * 32 * 32 * 8 / 1e12 / base.efficiency.attention, rel=1e-3)
    x, w = torch.ones(1, 4, 8, 8, device="sim"), torch.ones(6, 4, 3, 3, device="sim")
    before = stream.time_s
    nn.functional.conv2d(x, w, padding=1)
    assert stream.time_s - before == pytest.approx(2 * 6 * 64 * 4 * 9 / 1e12 / base.efficiency.conv, rel=1e-3)


def test_an_elementwise_kernel_takes_its_bytes() -> None:
    base = profile(launch_us=0.0)
    world = start(World(base))
    x = torch.ones(1024, device="sim")
    before = world.device(0).current.time_s
    x + x
    # x is read as two operands, the result written
    assert world.device(0).current.time_s - before == pytest.approx(3 * 4096 / base.memory_gbps / 1e9)


def test_half_precision_runs_at_its_own_rate() -> None:
    base = profile(launch_us=0.0, memory_gbps=1e9)
    world = start(World(base))
    stream = world.device(0).current
    taken = []
    for dtype in (torch.float32, torch.bfloat16):
        x = torch.ones(64, 64, dtype=dtype, device="sim")
        before = stream.time_s
        x @ x
        taken.append(stream.time_s - before)
    assert taken[0] / taken[1] == pytest.approx(base.bf16_tflops / base.fp32_tflops, rel=1e-3)


def test_the_host_runs_ahead_until_it_needs_a_number() -> None:
    world = start(World(balanced(compute_s=1.0)))
    x = torch.ones(ROWS, WIDTH, device="sim")
    y = nn.functional.linear(x, torch.ones(WIDTH, WIDTH, device="sim"))
    assert world.host_s < 0.01
    assert y.sum().item() == ROWS * WIDTH * WIDTH
    assert world.host_s > 1.0


@pytest.mark.parametrize(
    "ask", [lambda x: x.nonzero(), lambda x: x[x > 0], lambda x: torch.equal(x, x), lambda x: bool(x.sum())]
)
def test_an_operation_whose_result_the_host_needs_waits(ask: object) -> None:
    world = start(World(balanced(compute_s=1.0)))
    x = nn.functional.linear(torch.ones(ROWS, WIDTH, device="sim"), torch.ones(WIDTH, WIDTH, device="sim"))
    ask(x)  # type: ignore[operator]
    assert world.host_s > 1.0
