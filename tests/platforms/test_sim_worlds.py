"""Several devices in one machine, and several machines one after another in one process."""

import pytest
import torch

from framework.platforms import make_platform
from framework.platforms.sim import World, current, start
from framework.platforms.sim.platform import SimPlatform


def test_each_device_has_its_own_memory() -> None:
    world = start(World(num_devices=2, capacity_bytes=1024))
    x = torch.ones(128, device="sim:0")
    y = torch.ones(256, device="sim:1")
    assert [device.ledger.live_bytes for device in world.devices] == [512, 1024]
    with pytest.raises(torch.OutOfMemoryError, match="sim:1"):
        torch.ones(1, device="sim:1")
    assert (x.device, y.device) == (torch.device("sim:0"), torch.device("sim:1"))
    assert torch.sim.device_count() == 2  # type: ignore[attr-defined]


def test_tensors_can_move_between_devices() -> None:
    world = start(World(num_devices=2))
    x = torch.arange(4.0, device="sim:0")
    y = x.to("sim:1")
    z = torch.zeros(4, device="sim:0").copy_(y)
    assert y.device == torch.device("sim:1")
    assert (z + x).tolist() == [0, 2, 4, 6]
    x.add_(1)  # the copy read it on the other device's stream, and is waited for
    assert y.tolist() == [0, 1, 2, 3]
    assert x.to("sim:1", torch.float64).dtype == torch.float64
    assert [move.direction for move in world.moves[:2]] == ["p2p", "p2p"]


def test_a_device_number_beyond_reason_is_refused(sim: World) -> None:
    with pytest.raises(RuntimeError, match="invalid device ordinal: sim:64"):
        torch.ones(1, device="sim:64")


def test_a_new_world_starts_empty_and_the_old_one_ends_in_peace() -> None:
    old = start(World())
    x = torch.ones(4, device="sim")
    new = start(World())
    assert current() is new
    with pytest.raises(RuntimeError, match="earlier simulated machine"):
        x + 1
    with pytest.raises(RuntimeError, match="earlier simulated machine"):
        x.copy_(torch.ones(4))
    del x
    assert old.device(0).ledger.live_bytes == 0
    assert new.device(0).ledger.live_bytes == 0
    assert new.host_s == 0.0


def test_platforms_of_one_machine_share_its_clock(sim: World) -> None:
    first, second = make_platform("sim:0"), make_platform("sim:1")
    assert isinstance(first, SimPlatform)
    assert isinstance(second, SimPlatform)
    assert first.world is second.world is sim


def test_torch_sim_answers_what_libraries_ask(sim: World) -> None:
    module = torch.sim  # type: ignore[attr-defined]
    x = torch.ones(4, device="sim")
    stream, event = module.Stream(), module.Event()
    with module.stream(stream):
        assert module.current_stream() is stream
        event.record()
    event.wait()
    event.synchronize()
    assert event.query()
    assert module.current_stream() is module.default_stream()
    assert module.memory_allocated() == module.max_memory_allocated() == 512
    free, total = module.mem_get_info()
    assert total - free == 512
    assert torch.accelerator.is_available()
    assert torch.accelerator.current_accelerator().type == "sim"  # type: ignore[union-attr]
    module.synchronize()
    del x
