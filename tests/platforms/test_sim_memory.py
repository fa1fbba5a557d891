"""Bytes: the ledger of a device, retired ranges, the pinned pool, planted failures."""

import pytest
import torch

from framework.platforms.sim import SimFault, SimOOM, World, start
from framework.platforms.sim.platform import SimPlatform
from framework.platforms.sim.testing import assert_idle, planted_race


def test_memory_is_counted_in_granules_and_given_back(sim: World, platform: SimPlatform) -> None:
    x = torch.empty(1, device="sim")
    y = torch.empty(129, device="sim")
    assert platform.memory().allocated_bytes == 512 + 1024
    del y
    platform.reset_peak()
    assert (platform.memory().allocated_bytes, platform.memory().peak_bytes) == (512, 512)
    del x
    assert platform.memory().allocated_bytes == 0


def test_a_view_keeps_the_whole_buffer(sim: World, platform: SimPlatform) -> None:
    arena = platform.reserve(4096)
    part = arena[:16]
    del arena
    assert platform.memory().allocated_bytes == 4096
    del part
    assert platform.memory().allocated_bytes == 0


def test_the_capacity_is_exact_to_the_granule() -> None:
    world = start(World(capacity_bytes=2048))
    kept = [torch.empty(512, dtype=torch.uint8, device="sim") for _ in range(3)]
    kept.append(torch.empty(512, dtype=torch.uint8, device="sim"))
    with pytest.raises(torch.OutOfMemoryError, match="tried to allocate 512 bytes with 2048 bytes held of 2048"):
        torch.empty(1, dtype=torch.uint8, device="sim")
    assert world.device(0).ledger.live_bytes == 2048
    kept.pop()
    torch.empty(512, dtype=torch.uint8, device="sim")


def test_the_result_of_an_operation_needs_room_too() -> None:
    start(World(capacity_bytes=1024))
    x = torch.ones(128, device="sim")
    y = x + 1
    with pytest.raises(SimOOM):
        x + y
    x.add_(y)  # in place needs none
    assert x.tolist() == [3.0] * 128


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16, torch.float64, torch.float8_e4m3fn])
def test_memory_that_nobody_wrote_is_nan(sim: World, platform: SimPlatform, dtype: torch.dtype) -> None:
    assert torch.empty(4, dtype=dtype, device="sim").cpu().float().isnan().all()
    assert platform.reserve(64).view(dtype).cpu().float().isnan().all()


def test_unwritten_whole_numbers_are_the_largest(sim: World) -> None:
    assert torch.empty(2, dtype=torch.int64, device="sim").tolist() == [torch.iinfo(torch.int64).max] * 2


def test_a_retired_range_cannot_be_read_until_it_is_written(sim: World, platform: SimPlatform) -> None:
    arena = platform.reserve(2048)
    arena.zero_()
    slot = arena[512:1024]
    platform.retire(slot)
    assert (arena[:512] + 1).sum().item() == 512
    with planted_race(sim, "add.Tensor on default reads bytes 512..1024 that have been retired"):
        slot + 1
    with planted_race(sim, "d2h on default reads bytes 512..1024 that have been retired"):
        arena.cpu()
    with planted_race(sim, "add_.Tensor on default reads bytes 512..1024"):
        slot.add_(1)
    arena[512:768].zero_()
    assert (arena[512:768] + 1).sum().item() == 256
    with planted_race(sim, "reads bytes 768..1024"):
        slot + 1
    slot.fill_(3)
    assert (slot + 1).sum().item() == 4 * 512


def test_what_is_retired_is_nan_even_where_nobody_checks() -> None:
    world = start(World(strict=False))
    platform = SimPlatform()
    arena = platform.reserve(512)
    weight = arena.view(torch.float32)
    weight.zero_()
    platform.retire(arena)
    assert weight.cpu().isnan().all()
    assert len(world.races) == 1


def test_a_copy_on_its_way_into_a_retired_range_is_forgotten(sim: World, platform: SimPlatform) -> None:
    slot, source = platform.reserve(512), platform.allocate_pinned(512)
    assert source is not None
    source.fill_(1)
    platform.copy_async(slot, source, platform.current_stream())
    platform.retire(slot)
    platform.synchronize()
    with planted_race(sim, "retired"):
        slot + 1
    platform.copy_async(slot, source, platform.current_stream())
    assert slot.tolist() == [1] * 512


def test_pinned_memory_is_exact_and_capped() -> None:
    world = start(World(pinned_bytes=1000))
    platform = SimPlatform()
    first = platform.allocate_pinned(700)
    assert first is not None
    assert first.shape == (700,)
    assert platform.allocate_pinned(301) is None
    second = platform.allocate_pinned(300)
    assert second is not None
    assert platform.memory().pinned_bytes == 1000
    part = first[10:20]
    del first, second
    assert platform.memory().pinned_bytes == 700  # a view keeps it
    assert world.pinned.find(part) is not None
    assert world.pinned.find(torch.empty(4)) is None
    del part
    assert platform.memory().pinned_bytes == 0
    assert world.pinned.peak_bytes == 1000


def test_the_nth_allocation_can_be_made_to_fail(sim: World, platform: SimPlatform) -> None:
    sim.faults.fail_allocation(nth=2)
    torch.empty(1, device="sim")
    with pytest.raises(torch.OutOfMemoryError, match="planted"):
        platform.reserve(1)
    platform.reserve(1)


def test_a_copy_can_be_made_to_fail(sim: World, platform: SimPlatform) -> None:
    slot = platform.reserve(4)
    sim.faults.fail_copy()
    with pytest.raises(SimFault, match="copy h2d of 4 bytes failed"):
        slot.copy_(torch.zeros(4, dtype=torch.uint8))
    slot.copy_(torch.zeros(4, dtype=torch.uint8))
    assert slot.tolist() == [0] * 4


def test_the_card_can_shrink_under_way(sim: World, platform: SimPlatform) -> None:
    first = platform.reserve(1024)
    sim.faults.shrink_capacity(1024, nth=2)
    second = platform.reserve(512)
    with pytest.raises(SimOOM, match="1536 bytes held of 1024"):
        platform.reserve(512)
    assert platform.memory().free_bytes == 0
    del first, second
    platform.reserve(1024)


def test_planted_failures_can_be_taken_back(sim: World, platform: SimPlatform) -> None:
    sim.faults.fail_allocation()
    sim.faults.fail_copy()
    sim.faults.clear()
    platform.reserve(4).copy_(torch.zeros(4, dtype=torch.uint8))


def test_the_fixture_fails_a_test_that_keeps_memory() -> None:
    world = start(World())
    kept = SimPlatform().reserve(8)
    with pytest.raises(AssertionError, match="sim:0 still holds 512 bytes"):
        assert_idle(world)
    del kept
    assert_idle(world)
