"""A streamed component computes what a resident one does, inside the memory it announced."""

from collections.abc import Callable

import memory_builders as build
import pytest
import torch
from torch import Tensor

from framework.errors import ConfigError, StageError
from framework.memory.absent import AbsentWeight, Placeholder
from framework.memory.parcel import ChangedWeight
from framework.memory.resources import Resources
from framework.platforms.sim.world import World

X = torch.linspace(-1, 1, 8).reshape(2, 4)
Make = Callable[..., Resources]


def live(sim: World) -> int:
    return sim.devices[0].ledger.live_bytes


def round_up(size: int) -> int:
    return -(-size // 512) * 512


@pytest.mark.parametrize("policy", ["leading", "strided"])
@pytest.mark.parametrize("prefetch", [0, 1, 2, 5, 6, 100])
@pytest.mark.parametrize("resident", [0, 1, 3, 5, 6])
def test_every_knob_gives_the_same_bytes_twice(make_resources: Make, policy: str, prefetch: int, resident: int) -> None:
    model = build.layered(range(3, 9))
    expected = build.reference(model, X)
    streamer = build.stream(model, make_resources(), prefetch, resident, policy=policy)
    for _ in range(2):
        assert torch.equal(build.use(streamer, model, X), expected)


def test_a_single_layer_streams(make_resources: Make) -> None:
    model = build.layered([5])
    expected = build.reference(model, X)
    for prefetch in (0, 1):
        streamer = build.stream(model, make_resources(), prefetch)
        assert torch.equal(build.use(streamer, model, X), expected)
        streamer.detach()
        model.passes = 0


def test_uneven_stacks_share_one_ring_sized_for_the_largest_layer(make_resources: Make, sim: World) -> None:
    model = build.layered([4, 64, 4], second=[16] * 5)
    expected = build.reference(model, X)
    streamer = build.stream(model, make_resources(), prefetch=2)
    assert torch.equal(build.use(streamer, model, X), expected)
    largest = max(layer.size_bytes for layer in streamer.parcels() if layer.name.startswith(("blocks", "more")))
    rest = sum(round_up(p.size_bytes) for p in streamer.parcels() if not p.name.startswith(("blocks", "more")))
    streamer.start()
    assert live(sim) == 3 * round_up(largest) + rest
    streamer.finish()
    assert live(sim) == rest


def test_a_ring_forgets_what_a_component_asked_for_that_has_left(make_resources: Make, sim: World) -> None:
    model = build.layered()
    shared = make_resources()
    sizes = []
    for prefetch in (4, 1, 4):
        streamer = build.stream(model, shared, prefetch)
        streamer.start()
        sizes.append(live(sim))
        streamer.finish()
        streamer.detach()
    assert sizes[1] < sizes[0] == sizes[2]
    assert shared.ring("transformer").size_bytes == 0


def test_all_weights_are_absent_outside_calls_and_present_inside(make_resources: Make) -> None:
    model = build.layered()
    streamer = build.stream(model, make_resources(), prefetch=1, resident=2, policy="leading")
    seen: list[list[bool]] = []

    def look(*_: object) -> None:
        seen.append([not isinstance(block.into.weight, Placeholder) for block in model.blocks])

    model.blocks[3].out.register_forward_hook(look)
    build.use(streamer, model, X, steps=1)
    assert seen == [[True, True, False, True, False, False]]
    assert all(isinstance(block.into.weight, Placeholder) for block in model.blocks)


def test_a_read_outside_the_layers_own_call_is_refused_by_name(make_resources: Make) -> None:
    model = build.layered()
    streamer = build.stream(model, make_resources())
    streamer.start()
    streamer.wait()
    with pytest.raises(AbsentWeight, match=r"'blocks.2.into.weight' of 'blocks.2' was used"):
        model.blocks[2].into(X.to("sim"))
    streamer.finish()


def test_a_call_outside_a_use_is_refused_by_name(make_resources: Make) -> None:
    model = build.layered()
    build.stream(model, make_resources())
    with pytest.raises(StageError, match=r"layer 'blocks.1' was called outside a use"):
        model.blocks[1](X)


ORDERS = {
    "reverse": [[5, 4, 3, 2, 1, 0]],
    "skips on odd steps (OC-02)": [[0, 1, 2, 3, 4, 5], [0, 1, 4, 5]],
    "twice in a pass": [[0, 1, 2, 1, 2, 3, 3, 4, 5]],
    "never runs": [[0, 2, 4]],
    "always another": [[0, 3, 1], [5, 2, 0], [4, 4, 1], [2, 5, 3]],
    "one layer only": [[3]],
}


@pytest.mark.parametrize("order", ORDERS.values(), ids=ORDERS)
@pytest.mark.parametrize(("prefetch", "resident"), [(0, 0), (1, 0), (2, 2)])
def test_any_order_of_calls_gives_the_same_bytes(
    make_resources: Make, order: list[list[int]], prefetch: int, resident: int
) -> None:
    model = build.layered()
    model.order = order
    expected = build.reference(model, X, steps=4)
    streamer = build.stream(model, make_resources(), prefetch, resident)
    for _ in range(3):
        assert torch.equal(build.use(streamer, model, X, steps=4), expected)
        model.passes = 0


def test_three_requests_in_one_process_the_last_of_another_size(make_resources: Make) -> None:
    """OC-04."""
    model = build.layered()
    inputs = [X, X, torch.ones(5, 4)]
    expected = [build.reference(model, x) for x in inputs]
    streamer = build.stream(model, make_resources())
    for x, y in zip(inputs, expected, strict=True):
        assert torch.equal(build.use(streamer, model, x), y)


def test_a_known_use_copies_each_layer_once_a_step_and_nothing_for_nothing(make_resources: Make, sim: World) -> None:
    model = build.layered()
    streamer = build.stream(model, make_resources(), prefetch=2)
    build.use(streamer, model, X)
    sim.moves.clear()
    build.use(streamer, model, X)
    copied = [move.layer for move in sim.moves if move.layer is not None]
    assert copied == [f"blocks.{i}" for i in range(6)] * 3


def test_as_many_slots_as_layers_copy_each_once(make_resources: Make, sim: World) -> None:
    model = build.layered()
    streamer = build.stream(model, make_resources(), prefetch=5)
    build.use(streamer, model, X)
    copied = [move.layer for move in sim.moves if str(move.layer).startswith("blocks")]
    assert copied == [f"blocks.{i}" for i in range(6)]


def test_residents_do_not_hold_up_the_first_pass(make_resources: Make, sim: World) -> None:
    model = build.layered()
    streamer = build.stream(model, make_resources(), prefetch=1, resident=3, policy="strided")
    build.use(streamer, model, X, steps=1)
    copied = [move.layer for move in sim.moves if str(move.layer).startswith("blocks")]
    assert copied[:6] == [f"blocks.{i}" for i in range(6)]


@pytest.mark.parametrize("lifetime", ["use", "retained"])
def test_residents_live_as_long_as_they_are_told(make_resources: Make, sim: World, lifetime: str) -> None:
    model = build.layered()
    streamer = build.stream(model, make_resources(), resident=3, lifetime=lifetime)
    expected = build.use(streamer, model, X)
    idle = live(sim)
    sim.moves.clear()
    assert torch.equal(build.use(streamer, model, X), expected)
    copied = {str(move.layer) for move in sim.moves if str(move.layer).startswith("blocks")}
    assert live(sim) == idle
    assert len(copied) == (3 if lifetime == "retained" else 6)
    streamer.release_all()
    assert live(sim) == 0


def test_inside_a_use_no_weight_memory_is_taken(make_resources: Make, sim: World) -> None:
    """The allocations of a step are those of its activations: the same as when every weight is resident."""
    model = build.layered()
    streamer = build.stream(model, make_resources(), prefetch=2, resident=2)
    streamer.start()
    streamer.wait()
    y = X.to("sim")
    held = live(sim)
    for _ in range(3):
        y = model(y)
        assert live(sim) == held
    del y
    streamer.finish()


def test_memory_that_the_use_needs_and_not_a_granule_more_is_enough(make_resources: Make, sim: World) -> None:
    """ME-01: a component larger than the card starts, for nothing is ever there at once."""
    model = build.layered([300] * 8)
    expected = build.reference(model, X)
    total = sum(parameter.nbytes for parameter in model.parameters())
    ledger = sim.devices[0].ledger
    streamer = build.stream(model, make_resources(), prefetch=1, resident=1)
    assert torch.equal(build.use(streamer, model, X), expected)
    assert ledger.peak_bytes < 0.6 * total
    ledger.capacity_bytes = ledger.peak_bytes
    streamer.release_all()
    assert torch.equal(build.use(streamer, model, X), expected)
    streamer.release_all()
    ledger.capacity_bytes -= 512
    with pytest.raises(torch.OutOfMemoryError):
        build.use(streamer, model, X)
    streamer.release_all()


@pytest.mark.parametrize("nth", range(1, 8))
def test_a_failed_reservation_leaves_the_component_idle(make_resources: Make, sim: World, nth: int) -> None:
    model = build.layered()
    expected = build.reference(model, X)
    streamer = build.stream(model, make_resources(), prefetch=1, resident=2)
    sim.faults.fail_allocation(nth)
    with pytest.raises(torch.OutOfMemoryError):
        build.use(streamer, model, X)
    streamer.release_all()
    assert live(sim) == 0
    sim.faults.clear()
    assert torch.equal(build.use(streamer, model, X), expected)


@pytest.mark.parametrize("nth", [1, 2, 4, 7, 12, 15])
def test_a_failed_copy_ends_the_use_and_the_next_one_is_right(make_resources: Make, sim: World, nth: int) -> None:
    model = build.layered()
    expected = build.reference(model, X)
    streamer = build.stream(model, make_resources(), prefetch=1, resident=2)
    sim.faults.fail_copy(nth)
    with pytest.raises(RuntimeError, match="planted"):
        build.use(streamer, model, X)
    model.passes = 0
    assert all(isinstance(block.into.weight, Placeholder) for block in model.blocks)
    assert torch.equal(build.use(streamer, model, X), expected)


@pytest.mark.parametrize("error", [KeyboardInterrupt, RuntimeError])
def test_an_interrupt_inside_a_layer_leaves_nothing_behind(
    make_resources: Make, sim: World, error: type[BaseException]
) -> None:
    """LI-03: in block 2 of step 3, while a prefetch is pending."""
    model = build.layered()
    expected = build.reference(model, X, steps=4)
    streamer = build.stream(model, make_resources(), prefetch=2)
    assert torch.equal(build.use(streamer, model, X, steps=4), expected)
    idle, hooks = live(sim), len(model.blocks[2]._forward_hooks)
    calls = iter(range(100))

    def fail(*_: object) -> None:
        if next(calls) == 2:
            raise error("stop")

    handle = model.blocks[2].into.register_forward_hook(fail)
    with pytest.raises(error):
        build.use(streamer, model, X, steps=4)
    handle.remove()
    model.passes = 0
    assert live(sim) == idle
    assert len(model.blocks[2]._forward_hooks) == hooks
    assert torch.equal(build.use(streamer, model, X, steps=4), expected)


def test_a_call_that_failed_and_is_repeated_inside_the_use_is_right(make_resources: Make) -> None:
    model = build.layered()
    expected = build.reference(model, X, steps=1)
    streamer = build.stream(model, make_resources(), prefetch=1)
    failing = model.blocks[2].into.register_forward_hook(lambda *_: 1 / 0)
    streamer.start()
    streamer.wait()
    with pytest.raises(ZeroDivisionError):
        model(X.to("sim"))
    failing.remove()
    model.passes = 0
    assert torch.equal(model(X.to("sim")).cpu(), expected)
    streamer.finish()


def write(module: torch.nn.Module, *_: object) -> None:
    """A hook that changes a weight on the device."""
    module.weight.add_(1)


def test_a_written_weight_is_an_error_that_names_it(make_resources: Make) -> None:
    model = build.layered()
    handle = model.blocks[2].into.register_forward_hook(write)
    streamer = build.stream(model, make_resources())
    with pytest.raises(ChangedWeight, match=r"'blocks.2.into.weight' changed on the device"):
        build.use(streamer, model, X)
    handle.remove()
    assert build.use(streamer, model, X).isfinite().all()


def test_weights_outside_the_layers_may_not_be_written_either(make_resources: Make) -> None:
    model = build.layered()
    streamer = build.stream(model, make_resources())
    handle = model.tail.register_forward_hook(write)
    with pytest.raises(ChangedWeight, match=r"'tail.weight'"):
        build.use(streamer, model, X)
    handle.remove()
    with pytest.raises(ChangedWeight):
        streamer.release_all()
    streamer.release_all()


def test_attach_and_detach_are_symmetric(make_resources: Make, sim: World) -> None:
    """LI-04: hooks do not pile up, and the weights come back bit by bit where they were."""
    model = build.layered()
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    expected = build.reference(model, X)
    for prefetch in (1, 0, 2):
        streamer = build.stream(model, make_resources(), prefetch)
        assert torch.equal(build.use(streamer, model, X), expected)
        model.passes = 0
        streamer.detach()
        assert not any(part._forward_hooks or part._forward_pre_hooks for part in model.modules())
        assert live(sim) == 0
    after = model.state_dict()
    assert list(after) == list(before)
    assert all(torch.equal(after[name], before[name]) for name in before)


def test_load_all_pauses_streaming_and_release_all_ends_it(make_resources: Make, sim: World) -> None:
    model = build.layered()
    expected = build.reference(model, X)
    streamer = build.stream(model, make_resources(), resident=2)
    streamer.load_all()
    streamer.load_all()
    weights = list(model.parameters())
    assert not any(isinstance(weight, Placeholder) for weight in weights)
    y: Tensor = X.to("sim")
    for _ in range(3):
        y = model(y)
    assert torch.equal(y.cpu(), expected)
    del weights, y
    streamer.release_all()
    assert live(sim) == 0
    model.passes = 0
    assert torch.equal(build.use(streamer, model, X), expected)


@pytest.mark.parametrize("nth", [1, 5, 7, 8])
def test_a_failed_load_all_leaves_the_component_idle(make_resources: Make, sim: World, nth: int) -> None:
    model = build.layered()
    expected = build.reference(model, X)
    streamer = build.stream(model, make_resources(), resident=2)
    sim.faults.fail_allocation(nth)
    with pytest.raises(torch.OutOfMemoryError):
        streamer.load_all()
    assert live(sim) == 0
    assert torch.equal(build.use(streamer, model, X), expected)


def test_inference_mode_changes_nothing_and_writes_are_still_seen(make_resources: Make) -> None:
    model = build.layered()
    expected = build.reference(model, X)
    with torch.inference_mode():
        streamer = build.stream(model, make_resources(), resident=1)
        assert torch.equal(build.use(streamer, model, X), expected)
        handle = model.blocks[2].into.register_forward_hook(write)
        with pytest.raises(ChangedWeight, match=r"'blocks.2.into.weight'"):
            build.use(streamer, model, X)
        handle.remove()
    model.passes = 0
    streamer.host_weights()["blocks.2.into.weight"].add_(0)
    assert torch.equal(build.use(streamer, model, X), expected)


def test_what_lies_outside_the_layers_can_be_parked_between_uses(make_resources: Make, sim: World) -> None:
    model = build.layered()
    expected = build.reference(model, X)
    streamer = build.stream(model, make_resources(), park=True)
    for _ in range(2):
        assert torch.equal(build.use(streamer, model, X), expected)
        assert live(sim) == 0


def test_host_memory_and_ledger_are_flat_over_twenty_uses(make_resources: Make, sim: World) -> None:
    """ME-05."""
    model = build.layered([20] * 6)
    streamer = build.stream(model, make_resources(), resident=1)
    build.use(streamer, model, X)
    idle, pinned = live(sim), sim.pinned.live_bytes
    for _ in range(20):
        build.use(streamer, model, X, steps=10)
        assert (live(sim), sim.pinned.live_bytes) == (idle, pinned)


def test_two_components_share_one_ring(make_resources: Make, sim: World) -> None:
    """Wan's experts, of different depth: one ring serves both, and the second's head comes before its first call."""
    names = ("transformer", "transformer_2")
    shared = make_resources(shared_ring=names)
    high, low = build.layered([8] * 4, seed=1), build.layered([24] * 6, seed=2)
    expected = build.reference(low, build.reference(high, X))
    streamers = [build.stream(m, shared, prefetch=1, component=n) for m, n in zip((high, low), names, strict=True)]
    for _ in range(2):
        y = build.use(streamers[0], high, X)
        assert torch.equal(build.use(streamers[1], low, y), expected)
    ring = shared.ring("transformer_2")
    streamers[0].start()
    held = live(sim)
    streamers[1].start()
    assert live(sim) == held, "the second expert brings no ring of its own"
    assert ring.num_slots == 2
    sim.moves.clear()
    for streamer in streamers:
        streamer.wait()
    y = X.to("sim")
    for _ in range(3):
        y = high(y)
    last = [move.layer for move in sim.moves if move.layer is not None][-2:]
    assert last == ["blocks.0", "blocks.1"], "the head of the second was fetched in the first's last steps"
    streamers[0].finish()
    sim.moves.clear()
    for _ in range(3):
        y = low(y)
    streamers[1].finish()
    assert torch.equal(y.cpu(), expected)


def test_attaching_to_a_managed_component_is_our_own_mistake(make_resources: Make) -> None:
    model = build.layered()
    build.stream(model, make_resources())
    with pytest.raises(AssertionError, match="managed already"):
        build.stream(model, make_resources())


def test_a_component_without_known_layers_is_refused_naming_what_works(make_resources: Make) -> None:
    with pytest.raises(ConfigError, match=r"component_residency.transformer: layerwise-offload cannot be used"):
        build.attach_streamer("transformer", build.layered(), build.Knobs((1,), (0,)), make_resources())
