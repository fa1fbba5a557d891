"""Mistakes planted in the engine: each one is caught, by a race, by NaN, by a placeholder or by other bytes."""

from collections.abc import Callable
from typing import Any

import memory_builders as build
import pytest
import torch
from torch import Tensor, nn

from framework.memory import streamer as streamer_module
from framework.memory.absent import AbsentWeight
from framework.memory.ownership import Weight
from framework.memory.resources import Resources
from framework.memory.streamer import Streamer
from framework.platforms.sim.platform import SimPlatform
from framework.platforms.sim.testing import planted_race
from framework.platforms.sim.world import World

Make = Callable[..., Resources]
X = torch.linspace(-1, 1, 8).reshape(2, 4)


def big() -> build.Layered:
    return build.layered([400] * 6)


def run(streamer: Streamer, model: nn.Module) -> Tensor:
    return build.use(streamer, model, X, steps=2)


def test_without_a_mistake_all_is_well(make_resources: Make) -> None:
    model = big()
    expected = build.reference(model, X, steps=2)
    assert torch.equal(run(build.stream(model, make_resources()), model), expected)


def test_a_missing_wait_before_use_is_caught(make_resources: Make, sim: World, monkeypatch: pytest.MonkeyPatch) -> None:
    model = big()
    streamer = build.stream(model, make_resources())
    original = SimPlatform.wait_event

    def forgetful(self: SimPlatform, stream: Any, event: Any) -> None:
        if stream.name != "default":
            original(self, stream, event)

    monkeypatch.setattr(SimPlatform, "wait_event", forgetful)
    with planted_race(sim, "without waiting for it"):
        run(streamer, model)
    monkeypatch.undo()
    streamer.release_all()
    sim.forget_races()


def test_a_slot_used_again_too_early_is_caught(
    make_resources: Make, sim: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """OC-03."""
    model = big()
    streamer = build.stream(model, make_resources())
    original = SimPlatform.wait_event

    def forgetful(self: SimPlatform, stream: Any, event: Any) -> None:
        if stream.name == "default" or not streamer.active or streamer._order._heard == []:
            original(self, stream, event)

    monkeypatch.setattr(SimPlatform, "wait_event", forgetful)
    with planted_race(sim, "may still read"):
        run(streamer, model)
    monkeypatch.undo()
    streamer.release_all()
    sim.forget_races()


def test_a_slot_given_up_before_its_compute_is_caught(
    make_resources: Make, sim: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = big()
    streamer = build.stream(model, make_resources())
    original = Streamer._enter

    def hasty(self: Streamer, layer: streamer_module.StreamedLayer) -> None:
        original(self, layer)
        assert layer.slot is not None
        self._platform.retire(layer.slot.memory)

    monkeypatch.setattr(Streamer, "_enter", hasty)
    streamer.detach()
    model.passes = 0
    streamer = build.stream(model, make_resources())
    with planted_race(sim, "retired"):
        run(streamer, model)
    monkeypatch.undo()
    streamer.release_all()
    sim.forget_races()


def test_a_lost_tie_is_caught(make_resources: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two layers share one weight; counted as each one's own, the second layer would take it from the first."""
    from framework.memory import ownership

    model = build.layered([8] * 3)
    model.blocks[2].into.weight = model.blocks[0].into.weight
    expected = build.reference(model, X, steps=2)
    good = build.stream(model, make_resources())
    assert torch.equal(run(good, model), expected)
    model.passes = 0
    good.detach()
    assert model.blocks[2].into.weight is model.blocks[0].into.weight

    def careless(weights: list[Weight], num_layers: int) -> tuple[list[list[Weight]], list[Weight]]:
        layers: list[list[Weight]] = [[] for _ in range(num_layers)]
        rest: list[Weight] = []
        for weight in weights:
            owner = min(weight.owners)
            (rest if owner == ownership.REST else layers[owner]).append(weight)
        return layers, rest

    monkeypatch.setattr("framework.memory.layerwise.split_by_owner", careless)
    bad = build.stream(model, make_resources())
    with pytest.raises(AbsentWeight, match=r"'blocks.0.into.weight' of 'blocks.0'"):
        run(bad, model)


def test_a_stale_placeholder_is_caught(make_resources: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    """OC-04: a layer that was released and is called as if it were there."""
    model = big()
    streamer = build.stream(model, make_resources())
    monkeypatch.setattr(Streamer, "_enter", lambda self, layer: None)
    fresh = big()
    broken = build.stream(fresh, make_resources())
    with pytest.raises(AbsentWeight, match=r"'blocks.0.into.weight'"):
        run(broken, fresh)
    monkeypatch.undo()
    assert run(streamer, model).isfinite().all()


def test_a_wrong_order_of_weights_is_caught(make_resources: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    """The bytes of one layer under the name of another: other bytes come out."""
    model = big()
    expected = build.reference(model, X, steps=2)
    streamer = build.stream(model, make_resources())
    layers = streamer._streamed
    layers[1].parcel.blob, layers[2].parcel.blob = layers[2].parcel.blob, layers[1].parcel.blob
    assert not torch.equal(run(streamer, model), expected)


def test_a_missing_buffer_is_caught(make_resources: Make) -> None:
    """OC-06: a buffer that stays behind on the host meets tensors of the device."""
    model = big()
    streamer = build.stream(model, make_resources())
    streamer.start()
    streamer.wait()
    model.blocks[1].shift = torch.rand(4)
    with pytest.raises(RuntimeError, match="same device"):
        model(X.to("sim"))
    streamer.release_all()


def test_pinned_bytes_that_die_under_a_copy_are_caught(
    make_resources: Make, sim: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    from framework.memory.blobs import Blob

    monkeypatch.delattr(Blob, "__del__")
    model = big()
    streamer = build.stream(model, make_resources())
    with planted_race(sim, "pinned bytes are freed"):
        streamer.start()
        streamer.release_all()
        for layer in streamer._streamed:
            layer.parcel.blob = None  # type: ignore[assignment]
