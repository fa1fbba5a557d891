"""What placing asks of a plan, and what a request is measured by."""

from dataclasses import replace

import pytest
import spec_builders
import torch
from spec_builders import Recorder
from torch import nn

from framework.memory.resources import make_resources
from framework.platforms import make_platform
from framework.platforms.sim.testing import sim as sim
from framework.platforms.sim.world import World
from framework.runtime.events import EventBus, Note
from framework.runtime.placed import Placed
from framework.runtime.placing import Meter, make_placed, note_depths, reads_of
from framework.spec import Placement


def test_a_denoiser_is_read_once_a_step_and_all_else_once() -> None:
    spec = spec_builders.pipeline("digits", lambda name: None)
    requests = [spec_builders.request(num_inference_steps=steps) for steps in (3, 20)]
    assert reads_of(spec, requests) == {"text_encoder": 1, "transformer": 20, "transformer_2": 20, "vae": 1}


def test_a_depth_that_is_not_the_models_is_told() -> None:
    recorder, bus = Recorder(), EventBus()
    bus.subscribe(recorder)
    blocks = nn.ModuleDict({"blocks": nn.ModuleList([nn.Linear(2, 2)] * 1)})
    spec = spec_builders.pipeline("digits", lambda name: None)
    for lengths in ((1,), (9,), None):
        part = replace(spec.components["transformer"], layers=("blocks",), num_layers=lengths)
        note_depths(replace(spec, components={"transformer": part}), {"transformer": blocks}, bus)
    told = "pipeline.components.transformer.num_layers is 9, the model has 1; its knobs follow that"
    assert [note.text for note in recorder.of(Note)] == [told]


def test_experts_that_stream_share_one_ring_and_one_copy_stream(sim: World) -> None:
    from framework.graph import build_graph

    spec = spec_builders.pipeline("digits", lambda name: None)
    plan = {
        name: Placement(component=name, group=part.group, mode="layerwise-offload")
        for name, part in spec.components.items()
    }
    resources = make_placed(spec, build_graph(spec), plan, make_platform("sim")).resources
    assert resources.ring("transformer") is resources.ring("transformer_2")
    assert resources.ring("transformer") is not resources.ring("text_encoder")
    assert resources.ring("text_encoder").courier is resources.courier


def test_a_meter_counts_the_weights_of_its_own_request(sim: World) -> None:
    placed = Placed(
        {"a": Placement(component="a", group=None, mode="component-offload")}, make_resources(make_platform("sim"))
    )
    strategy = placed.strategy("a", nn.Linear(8, 8).requires_grad_(False))
    for request in range(2):
        meter = Meter(placed, request)
        strategy.prepare()
        strategy.wait()
        strategy.finish_use()
        measured = meter.read()
        assert measured.moved_bytes == {"a": {"h2d": placed.footprints()["a"].used_bytes}}
        assert measured.device_peak_bytes == 512
    placed.close()


def test_a_meter_gives_no_device_peak_where_there_is_no_device() -> None:
    measured = Meter(Placed({}, make_resources(make_platform("cpu"))), 0).read()
    assert (measured.device_peak_bytes, measured.moved_bytes) == (None, {})


@pytest.mark.parametrize("mode", ["resident", "component-offload"])
def test_a_component_counts_with_the_bytes_it_takes(mode: str, sim: World) -> None:
    placed = Placed({"a": Placement(component="a", group=None, mode=mode)}, make_resources(make_platform("sim")))
    module = nn.Linear(64, 64, bias=False).requires_grad_(False)
    placed.strategy("a", module)
    found = placed.footprints()["a"]
    assert (found.used_bytes, found.idle_bytes) == (64 * 64 * 4, 64 * 64 * 4 if mode == "resident" else 0)
    placed.close()


def test_what_a_component_keeps_beside_its_weights_is_charged(sim: World) -> None:
    placed = Placed(
        {"a": Placement(component="a", group=None, mode="component-offload")}, make_resources(make_platform("sim"))
    )
    module = nn.Linear(8, 8).requires_grad_(False)
    placed.strategy("a", module)
    before, meter = placed.footprints()["a"], Meter(placed, 0)
    module.freqs = {"rope": [torch.zeros(16, device="sim"), torch.zeros(99)]}  # made by a first call
    after = placed.footprints()["a"]
    assert (after.used_bytes - before.used_bytes, after.idle_bytes - before.idle_bytes) == (64, 64)
    assert meter.read().loose_bytes == {"a": 64}
    del module.freqs
    assert Meter(placed, 1).read().loose_bytes == {}
    placed.close()
