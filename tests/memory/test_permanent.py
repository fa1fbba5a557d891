"""Lifetime `permanent`: residents and what lies outside the layers have their only copy on the device."""

from collections.abc import Callable
from pathlib import Path

import memory_builders as build
import pytest
import torch
from safetensors.torch import load_file, save_file

from framework.memory.host_ledger import HostLedger
from framework.memory.mapped_files import MappedFiles
from framework.memory.parcel import Parcel
from framework.memory.resources import Resources
from framework.memory.streamer import Streamer
from framework.platforms.sim.world import World

Make = Callable[..., Resources]


def tiers(streamer: Streamer) -> list[str]:
    return sorted(parcel.blob.tier for parcel in streamer.parcels())


def permanent(make: Make, resident: int = 3, **options: object) -> tuple[Streamer, build.Layered, Resources]:
    model, shared = build.layered(), make(**options)
    streamer = build.stream(model, shared, resident=resident, lifetime="permanent")
    return streamer, model, shared


def test_it_computes_the_same_in_every_use_and_moves_only_what_streams(make_resources: Make, sim: World) -> None:
    x = torch.rand(2, 4)
    expected = build.reference(build.layered(), x)
    streamer, model, shared = permanent(make_resources)
    streamer.place()
    for _ in range(3):
        model.passes = 0
        before = shared.courier.moved["transformer", "h2d"]
        assert torch.equal(build.use(streamer, model, x), expected)
        moved = shared.courier.moved["transformer", "h2d"] - before
        streamed = sum(layer.parcel.size_bytes for layer in streamer._streamed)
        buffers = sum(p.size_bytes for p in streamer.parcels() if p.name == "buffers" and p.blob.tier != "device")
        assert moved <= 3 * streamed + streamer._ring.size_bytes + buffers, "no resident moves again"
    assert streamer.idle_bytes == streamer.device_bytes
    streamer.detach()


def test_it_has_no_copy_on_the_host_and_books_none(make_resources: Make, sim: World) -> None:
    streamer, _, shared = permanent(make_resources)
    booked = shared.store.host.held_bytes
    streamer.place()
    assert tiers(streamer).count("device") == 4, "three residents and what lies outside the layers"
    on_host = sum(p.size_bytes for p in streamer.parcels() if p.blob.tier != "device")
    assert booked == shared.store.host.held_bytes == on_host
    assert sim.pinned.live_bytes <= on_host + 2 * 512, "and nothing of it was pinned on the way"
    streamer.detach()


def test_edits_reach_the_weights_on_the_device_and_detaching_brings_them_back(make_resources: Make, sim: World) -> None:
    x = torch.rand(2, 4)
    streamer, model, _ = permanent(make_resources, resident=6)
    streamer.place()
    weights = streamer.host_weights({"blocks.1.into.weight"})
    assert weights["blocks.1.into.weight"].device.type == "sim"
    edited = torch.full((6, 4), 0.5)
    weights["blocks.1.into.weight"].copy_(edited)
    plain = build.layered()
    plain.blocks[1].into.weight.copy_(edited)
    assert torch.equal(build.use(streamer, model, x), build.reference(plain, x))
    streamer.detach()
    assert torch.equal(model.blocks[1].into.weight, edited)
    model.passes = 0
    assert torch.equal(build.reference(model, x), build.reference(plain, x))


def test_a_mapped_file_is_left_alone(make_resources: Make, sim: World, tmp_path: Path) -> None:
    x, model = torch.rand(2, 4), build.layered()
    save_file({name: weight.contiguous() for name, weight in model.state_dict().items()}, tmp_path / "w.safetensors")
    expected = build.reference(model, x)
    model.load_state_dict(load_file(tmp_path / "w.safetensors"), assign=True)
    shared = make_resources(is_mapped=MappedFiles(), host=HostLedger())
    streamer = build.stream(model.requires_grad_(False), shared, resident=6, lifetime="permanent")
    streamer.place()
    model.passes = 0
    assert torch.equal(build.use(streamer, model, x), expected)
    assert shared.store.host.held_bytes == sum(p.size_bytes for p in streamer.parcels() if p.name == "buffers")
    streamer.detach()


def test_what_fails_while_it_comes_leaves_the_weights_usable(make_resources: Make, sim: World) -> None:
    x = torch.rand(2, 4)
    expected = build.reference(build.layered(), x)
    streamer, model, _ = permanent(make_resources, resident=6)
    ledger = sim.devices[0].ledger
    ledger.capacity_bytes = ledger.live_bytes + 3 * max(_sizes(streamer))
    with pytest.raises(torch.OutOfMemoryError):
        streamer.place()
    streamer.detach()
    assert torch.equal(build.reference(model, x), expected)


def _sizes(streamer: Streamer) -> list[int]:
    found: list[Parcel] = list(streamer.parcels())
    return [parcel.size_bytes for parcel in found]
