"""Pinned, pageable and mapped layers: the same bytes, inside the host's budget."""

import gc
import itertools
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Any

import memory_builders as build
import pytest
import torch
from safetensors.torch import load_file, save_file

from framework.memory.host_budget import HostMemory
from framework.memory.layerwise import attach_mover, attach_streamer
from framework.memory.pin_ledger import GIB
from framework.memory.resources import Resources
from framework.platforms.sim.platform import SimPlatform
from framework.platforms.sim.world import World

Make = Callable[..., Resources]
X = torch.linspace(-1, 1, 8).reshape(2, 4)
NOTHING_LEFT = 2 * GIB


def tiers(streamer: Any) -> set[str]:
    return {parcel.blob.tier for parcel in streamer.parcels() if parcel.name != "buffers"}


@pytest.mark.parametrize("prefetch", [0, 2])
@pytest.mark.parametrize("tier", ["pinned", "pageable", "mapped"])
def test_every_tier_gives_the_same_bytes(make_resources: Make, tmp_path: Path, tier: str, prefetch: int) -> None:
    model = build.layered([40] * 6)
    expected = build.reference(model, X)
    if tier == "mapped":
        save_file(model.state_dict(), tmp_path / "model.safetensors")
        model.load_state_dict(load_file(tmp_path / "model.safetensors"), assign=True)
    shared = make_resources(
        available=64 * GIB if tier == "pinned" else NOTHING_LEFT, is_mapped=lambda tensor: tier == "mapped"
    )
    if tier == "mapped":
        object.__setattr__(shared.store, "memory", lambda: HostMemory(GIB, 0))
    streamer = build.stream(model, shared, prefetch)
    assert tiers(streamer) == {tier}
    for _ in range(2):
        assert torch.equal(build.use(streamer, model, X), expected)
    before = (tmp_path / "model.safetensors").read_bytes() if tier == "mapped" else b""
    streamer.host_weights()["blocks.2.into.weight"].zero_()
    assert not torch.equal(build.use(streamer, model, X), expected)
    assert tier != "mapped" or (tmp_path / "model.safetensors").read_bytes() == before


def test_mapped_weights_are_copied_where_copies_fit(make_resources: Make, sim: World) -> None:
    streamer = build.stream(build.layered(), make_resources(available=NOTHING_LEFT, is_mapped=lambda tensor: True))
    assert tiers(streamer) == {"pageable"}
    assert sim.pinned.live_bytes == 0


def test_pinned_bytes_are_exact_and_one_copy_serves_a_layer(make_resources: Make, sim: World) -> None:
    model = build.layered()
    streamer = build.stream(model, make_resources())
    assert sim.pinned.live_bytes == sum(parcel.size_bytes for parcel in streamer.parcels())
    build.use(streamer, model, X, steps=1)
    assert [move.layer for move in sim.moves].count("blocks.3") == 1


@pytest.mark.parametrize("mode", ["component", "layerwise"])
def test_packing_frees_each_original_before_it_pins_much_more(
    make_resources: Make, monkeypatch: pytest.MonkeyPatch, mode: str
) -> None:
    """ME-05 and the loading rule: no second copy of a component while it is taken over."""
    model = build.layered([40] * 6)
    originals = [weakref.ref(parameter) for parameter in model.parameters()]
    alive: list[int] = []
    original = SimPlatform.allocate_pinned

    def count(self: SimPlatform, size_bytes: int) -> torch.Tensor | None:
        alive.append(sum(reference() is not None for reference in originals))
        return original(self, size_bytes)

    monkeypatch.setattr(SimPlatform, "allocate_pinned", count)
    monkeypatch.setattr("framework.memory.layerwise.CHUNK_BYTES", 1500)
    if mode == "component":
        kept: object = attach_mover("transformer", model, make_resources())
    else:
        kept = build.stream(model, make_resources())
    assert kept
    assert alive[0] == len(originals)
    per_step = len(originals) // 6 + 1
    assert all(later <= earlier for earlier, later in itertools.pairwise(alive))
    assert all(later <= alive[0] - (number - 1) * 2 for number, later in enumerate(alive) if number < len(alive) - 2)
    assert alive[-1] <= per_step


def test_a_pageable_layer_goes_through_the_staging_buffers(make_resources: Make, sim: World) -> None:
    model = build.layered([40] * 3)
    streamer = build.stream(model, make_resources(available=NOTHING_LEFT))
    build.use(streamer, model, X, steps=1)
    layer = next(parcel for parcel in streamer.parcels() if parcel.name == "blocks.1")
    sizes = [move.size_bytes for move in sim.moves if move.layer == "blocks.1"]
    whole, rest = divmod(layer.size_bytes, 512)
    assert sizes[: whole + 1] == [512] * whole + [rest]
    assert sim.pinned.live_bytes == 2 * 512


@pytest.mark.parametrize("nth", range(1, 30, 2))
def test_a_copy_through_the_staging_buffers_that_fails_leaves_nothing_behind(
    make_resources: Make, sim: World, nth: int
) -> None:
    model = build.layered([40] * 4)
    expected = build.reference(model, X, steps=2)
    streamer = build.stream(model, make_resources(available=NOTHING_LEFT), prefetch=2)
    build.use(streamer, model, X, steps=2)
    idle = sim.devices[0].ledger.live_bytes
    sim.faults.fail_copy(nth)
    with pytest.raises(RuntimeError, match="planted"):
        build.use(streamer, model, X, steps=2)
    sim.faults.clear()
    gc.collect()
    assert sim.devices[0].ledger.live_bytes == idle
    model.passes = 0
    assert torch.equal(build.use(streamer, model, X, steps=2), expected)


def test_streamed_layers_pin_before_residents(make_resources: Make) -> None:
    model = build.layered([40] * 6)
    shared = make_resources()
    size = build.stream(build.layered([40] * 6), shared).parcels()
    need = next(iter(size)).size_bytes
    tight = make_resources(available=NOTHING_LEFT + 3 * need)
    build.stream(model, tight, resident=3, policy="leading")
    granted = {decision.layer for decision in tight.store.ledger.decisions if decision.granted}
    assert {"blocks.3", "blocks.4", "blocks.5"} <= granted
    assert not {"blocks.0", "blocks.1", "blocks.2"} & granted


def test_a_pin_that_the_machine_refuses_is_logged_and_goes_pageable(make_resources: Make, sim: World) -> None:
    sim.pinned.capacity_bytes = 0
    model = build.layered()
    expected = build.reference(model, X)
    shared = make_resources()
    streamer = build.stream(model, shared)
    assert tiers(streamer) == {"pageable"}
    assert {decision.limit for decision in shared.store.ledger.decisions if not decision.granted} == {"platform"}
    assert torch.equal(build.use(streamer, model, X), expected)


def test_without_an_accelerator_nothing_is_pinned() -> None:
    """SX-12."""
    model = build.layered()
    expected = build.reference(model, X)
    shared = build.resources(device="cpu")
    streamer = attach_streamer(
        "transformer", model, build.knobs(model), shared, build.find_stacks("transformer", model, ["blocks"])
    )
    assert tiers(streamer) == {"pageable"}
    assert shared.store.ledger.decisions == []
    streamer.start()
    streamer.wait()
    y = X
    for _ in range(3):
        y = model(y)
    streamer.finish()
    assert torch.equal(y, expected)
