"""What nothing orders is a race; what an event orders is not. Per byte, not per buffer."""

import contextlib
import gc

import pytest
import torch

from framework.platforms.sim import SimCompat, SimRace, World, start
from framework.platforms.sim.platform import SimPlatform
from framework.platforms.sim.testing import assert_idle, planted_race

SLOT_BYTES = 512


def pinned(platform: SimPlatform, value: float, size_bytes: int = SLOT_BYTES) -> torch.Tensor:
    memory = platform.allocate_pinned(size_bytes)
    assert memory is not None
    memory.view(torch.float32).fill_(value)
    return memory


def floats(memory: torch.Tensor) -> torch.Tensor:
    return memory.view(torch.float32)


def test_a_copy_that_is_waited_for_arrives(platform: SimPlatform) -> None:
    slot, source, stream = platform.reserve(SLOT_BYTES), pinned(platform, 2.0), platform.make_stream("copy")
    # reserved on the compute stream: the copy stream must be ordered after that
    platform.wait_event(stream, platform.record_event(platform.current_stream()))
    platform.copy_async(slot, source, stream)
    platform.wait_event(platform.current_stream(), platform.record_event(stream))
    assert floats(slot).add(1).tolist() == [3.0] * 128


def test_a_copy_that_is_not_waited_for_is_a_race(sim: World, platform: SimPlatform) -> None:
    slot, source, stream = platform.reserve(SLOT_BYTES), pinned(platform, 2.0), platform.make_stream("copy")
    platform.copy_async(slot, source, stream)
    with planted_race(sim, "add.Tensor on default reads bytes 0..512 written by h2d on stream2 without waiting"):
        floats(slot).add(1)
    platform.synchronize()


def test_a_race_reads_nan_where_the_world_is_not_strict() -> None:
    world = start(World(strict=False))
    platform = SimPlatform()
    slot, source, stream = platform.reserve(SLOT_BYTES), pinned(platform, 2.0), platform.make_stream("copy")
    platform.copy_async(slot, source, stream)
    out = floats(slot) + 1
    assert len(world.races) == 1
    platform.synchronize()
    assert out.cpu().isnan().all()
    assert floats(slot).tolist() == [2.0] * 128


def test_a_slot_that_is_still_read_cannot_be_filled_again(sim: World, platform: SimPlatform) -> None:
    slot, source, stream = platform.reserve(SLOT_BYTES), pinned(platform, 2.0), platform.make_stream("copy")
    platform.copy_async(slot, source, stream)
    platform.wait_event(platform.current_stream(), platform.record_event(stream))
    floats(slot).add(1)
    with planted_race(sim, "h2d on copy overwrites bytes that add.Tensor on stream1 may still read"):
        platform.copy_async(slot, source, stream)
    platform.wait_event(stream, platform.record_event(platform.current_stream()))
    platform.copy_async(slot, source, stream)
    platform.synchronize()


def test_two_slots_of_one_buffer_are_independent(sim: World, platform: SimPlatform) -> None:
    arena, stream = platform.reserve(2 * SLOT_BYTES), platform.make_stream("copy")
    first, second = arena[:SLOT_BYTES], arena[SLOT_BYTES:]
    platform.copy_async(first, pinned_first := pinned(platform, 1.0), stream)
    ready = platform.record_event(stream)
    platform.copy_async(second, pinned_second := pinned(platform, 2.0), stream)
    platform.wait_event(platform.current_stream(), ready)
    assert (floats(first) + 1).tolist() == [2.0] * 128  # the copy into the other slot is still on its way
    assert sim.races == []
    with planted_race(sim, "reads bytes 512..1024"):
        floats(second) + 1
    platform.synchronize()
    del pinned_first, pinned_second


def test_overlapping_ranges_are_not_independent(sim: World, platform: SimPlatform) -> None:
    arena, source, stream = platform.reserve(2 * SLOT_BYTES), pinned(platform, 1.0), platform.make_stream("copy")
    platform.copy_async(arena[256 : 256 + SLOT_BYTES], source, stream)
    floats(arena[:256]).fill_(0)
    with planted_race(sim, "overwrites bytes 256..768"):
        floats(arena[:512]).fill_(0)
    platform.synchronize()


def test_bytes_arrive_late_for_a_host_that_does_not_wait(platform: SimPlatform) -> None:
    host, stream = pinned(platform, 0.0), platform.current_stream()
    platform.copy_async(host, torch.ones(128, device="sim").view(torch.uint8), stream)
    assert floats(host).isnan().all()
    platform.synchronize(platform.record_event(stream))
    assert floats(host).tolist() == [1.0] * 128


def test_a_host_copy_of_the_state_at_launch_not_at_arrival(platform: SimPlatform) -> None:
    x, host = torch.ones(128, device="sim"), pinned(platform, 0.0)
    platform.copy_async(host, x.view(torch.uint8), platform.current_stream())
    x.add_(1)
    platform.synchronize()
    assert floats(host).tolist() == [1.0] * 128


def test_a_blocking_copy_is_done_when_it_returns(sim: World) -> None:
    x = torch.full((4,), 3.0).to("sim")
    assert x.cpu().tolist() == [3.0] * 4
    late = x.to("cpu", non_blocking=True)
    assert late.isnan().all()
    sim.synchronize()
    assert late.tolist() == [3.0] * 4


def test_pageable_memory_may_be_changed_at_once(sim: World, platform: SimPlatform) -> None:
    slot, source = platform.reserve(SLOT_BYTES), torch.ones(SLOT_BYTES, dtype=torch.uint8)
    platform.copy_async(slot, source, platform.current_stream())
    source.fill_(9)
    assert slot.tolist() == [1] * SLOT_BYTES


def test_pinned_memory_changed_under_a_copy_is_a_race(sim: World, platform: SimPlatform) -> None:
    slot, source = platform.reserve(SLOT_BYTES), pinned(platform, 1.0)
    platform.copy_async(slot, source, platform.current_stream())
    floats(slot).add(1)  # the bytes arrive here; the host has not been told
    source.fill_(0)
    with planted_race(sim, "512 bytes of pinned memory changed while a copy on default could still read them"):
        platform.synchronize()


def test_pinned_memory_freed_under_a_copy_is_a_race(sim: World, platform: SimPlatform) -> None:
    slot, source = platform.reserve(SLOT_BYTES), pinned(platform, 1.0)
    platform.copy_async(slot, source, platform.current_stream())
    floats(slot).add(1)
    with planted_race(sim, "512 pinned bytes are freed while a copy"):
        del source
        gc.collect()
        torch.ones(1, device="sim")


def test_bytes_of_freed_pinned_memory_never_arrive(sim: World, platform: SimPlatform) -> None:
    slot, source = platform.reserve(SLOT_BYTES), pinned(platform, 1.0)
    platform.copy_async(slot, source, platform.current_stream())
    with planted_race(sim, "512 pinned bytes are freed"):
        del source
        platform.synchronize()
    assert floats(slot).cpu().isnan().all()


def test_memory_pinned_by_torch_is_kept_until_its_copies_are_done(sim: World) -> None:
    with SimCompat():
        source = torch.ones(4).pin_memory()
        assert source.is_pinned()
        assert not torch.ones(4).is_pinned()
        on_device = source.to("sim", non_blocking=True)
        del source
        assert sim.pinned.live_bytes == 16
        assert on_device.tolist() == [1.0] * 4
    assert sim.pinned.live_bytes == 0


def test_memory_freed_under_another_stream_is_found_by_the_next_operation(sim: World, platform: SimPlatform) -> None:
    stream = platform.make_stream("side")
    x = torch.ones(4, device="sim")
    platform.wait_event(stream, platform.record_event(platform.current_stream()))
    with torch.sim.stream(stream):  # type: ignore[attr-defined]
        x.add(1)
    del x
    with pytest.raises(SimRace, match=r"are freed while add\.Tensor on stream2 may still use them"):
        torch.ones(1, device="sim")
    assert len(sim.forget_races()) == 1


def test_memory_handed_out_again_is_not_free_for_every_stream(sim: World, platform: SimPlatform) -> None:
    used, source, stream = torch.ones(128, device="sim"), pinned(platform, 2.0), platform.make_stream("copy")
    used.add(1)
    del used
    slot = platform.reserve(SLOT_BYTES)  # perhaps the very memory that `add` still reads
    with planted_race(sim, "h2d on copy overwrites bytes 0..512 written by its earlier user"):
        platform.copy_async(slot, source, stream)
    platform.wait_event(stream, platform.record_event(platform.current_stream()))
    platform.copy_async(slot, source, stream)
    platform.synchronize()


def test_record_stream_keeps_memory_for_another_stream(sim: World, platform: SimPlatform) -> None:
    stream = platform.make_stream("side")
    x = torch.ones(4, device="sim")
    platform.wait_event(stream, platform.record_event(platform.current_stream()))
    with torch.sim.stream(stream):  # type: ignore[attr-defined]
        x.add(1)
    x.record_stream(stream)
    del x
    torch.ones(1, device="sim")
    sim.check()


def test_waiting_before_the_end_needs_no_record(sim: World, platform: SimPlatform) -> None:
    stream = platform.make_stream("side")
    x = torch.ones(4, device="sim")
    stream.wait_stream(platform.current_stream())
    with torch.sim.stream(stream):  # type: ignore[attr-defined]
        y = x.add(1)
    platform.current_stream().wait_stream(stream)
    del x
    assert y.tolist() == [2.0] * 4


def test_the_host_orders_what_it_has_waited_for(sim: World, platform: SimPlatform) -> None:
    sim.faults.link_slowdown = 1e4
    slot, source, stream = platform.reserve(SLOT_BYTES), pinned(platform, 2.0), platform.make_stream("copy")
    platform.copy_async(slot, source, stream)
    event = platform.record_event(stream)
    polls = 0
    while not event.query():
        polls += 1
    assert polls > 0
    assert floats(slot).tolist() == [2.0] * 128


def test_the_fixture_fails_a_test_with_an_unseen_race(platform: SimPlatform) -> None:
    world = start(World())
    platform = SimPlatform()
    slot, source, stream = platform.reserve(SLOT_BYTES), pinned(platform, 2.0), platform.make_stream("copy")
    platform.copy_async(slot, source, stream)
    with contextlib.suppress(RuntimeError):  # as code under test may do
        floats(slot).add(1)
    platform.synchronize()
    del slot, source
    with pytest.raises(AssertionError, match="1 races"):
        assert_idle(world)
