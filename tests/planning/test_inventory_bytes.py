"""The inventory of the tiny pipelines against what the engine really packs on the simulated device, to the byte."""

import gc
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import tiny_pipelines
import torch
import whole_builders
from torch import nn

from framework.graph import build_graph
from framework.loading.load import load_store
from framework.memory.courier import Courier
from framework.memory.host_budget import HostMemory
from framework.memory.host_store import HostStore
from framework.memory.layers import find_stacks
from framework.memory.layerwise import attach_streamer
from framework.memory.pin_ledger import GIB, PinLedger
from framework.memory.policy import Knobs
from framework.memory.resources import Resources
from framework.planning import owners
from framework.planning.facts import ComponentSizes
from framework.planning.inventory import inventory
from framework.planning.packing import granules
from framework.platforms import make_platform
from framework.platforms.sim.backend import install
from framework.platforms.sim.world import World, start
from framework.runtime.events import EventBus
from framework.runtime.placed import Placed, outside_inference
from framework.spec import PipelineSpec, Placement

SMALL_TABLE_BYTES = 2000
"""Small enough that the tiny text encoders have tables that stay on the host."""


CASES = [(name, dtype) for name in tiny_pipelines.BUILDERS for dtype in ("bfloat16", "float32", "float16")]
QUICK = {("wan22", "bfloat16"), ("wan21_i2v", "float16"), ("flux", "bfloat16"), ("sana", "float32")}
QUICK |= {("qwen_image", "bfloat16"), ("flux2_klein", "bfloat16")}


def marks_of(case: tuple[str, str]) -> Any:
    """Each class is looked at in a quick case; the rest repeats it in other company and other dtypes."""
    return () if case in QUICK else pytest.mark.slow


@pytest.fixture
def world() -> Iterator[World]:
    install()
    yield start(World())
    gc.collect()


def spec_of(name: str, tiny_folder: Callable[[str], Path], dtype: str) -> PipelineSpec:
    spec = whole_builders.whole(tiny_folder(name), whole_builders.tiny_args(name))
    return replace(spec, model=replace(spec.model, dtype=dtype))


def resources(table_bytes: int) -> Resources:
    platform = make_platform("sim")
    memory = HostMemory(64 * GIB, 64 * GIB)
    store = HostStore(platform, PinLedger(memory), memory=lambda: memory)
    return Resources(Courier(platform), store, table_bytes=table_bytes)


def allocated(shared: Resources) -> int:
    return shared.platform.memory().allocated_bytes


class Rig:
    """Gets every loaded module in turn and holds what its modes allocate against the inventory's figures."""

    def __init__(self, sizes: Mapping[str, ComponentSizes]) -> None:
        self.sizes = sizes
        self.seen: list[str] = []
        self.tables = 0

    def __call__(self, name: str, module: nn.Module) -> None:
        self.seen.append(name)
        sizes = self.sizes[name]
        assert sizes.size_bytes == sum(t.nbytes for t in {id(t): t for t in tensors(module)}.values()), name
        for mode, wanted in (("resident", sizes.resident_bytes), ("component-offload", sizes.whole_bytes)):
            assert self.used_bytes(name, module, mode) == wanted, f"{name} {mode}"
        if sizes.stacks:
            self.check_layers(name, module, sizes)
        gc.collect()  # the next component is built inside a device context, where no copy can be waited for

    def used_bytes(self, name: str, module: nn.Module, mode: str) -> int:
        shared = resources(SMALL_TABLE_BYTES)
        placed = Placed({name: Placement(component=name, group=None, mode=mode)}, shared)
        before = allocated(shared)
        with outside_inference():
            strategy = placed.strategy(name, module)
            strategy.prepare()
            strategy.wait()
            used = allocated(shared) - before
            strategy.finish_use()
        placed.close()
        return used

    def check_layers(self, name: str, module: nn.Module, sizes: ComponentSizes) -> None:
        stacks = find_stacks(name, module)
        assert [(stack.path, len(stack.layers)) for stack in stacks] == [(s.path, len(s.layers)) for s in sizes.stacks]
        layers = [layer for stack in sizes.stacks for layer in stack.layers]
        resident = tuple(len(stack.layers) // 2 for stack in stacks)
        knobs = Knobs((1,) * len(stacks), resident, policy="leading")
        shared = resources(SMALL_TABLE_BYTES)
        before = allocated(shared)
        with outside_inference():
            streamer = attach_streamer(name, module, knobs, shared, stacks)
            streamer.place()
            assert allocated(shared) - before == sizes.leftover_bytes + sizes.buffer_bytes, name
            packed = {parcel.name: parcel.size_bytes for parcel in streamer.parcels()}
            names = [layer.name for stack in stacks for layer in stack.layers]
            told = {name: layer.size_bytes for name, layer in zip(names, layers, strict=True) if layer.size_bytes}
            assert {layer: size for layer, size in packed.items() if layer in names} == told
            streamed = knobs.streamed([[layer.weight_bytes for layer in stack.layers] for stack in sizes.stacks])
            streamer.start()
            slots = [granules(max(layers[i].size_bytes for i in streamed))] * min(2, len(streamed)) if streamed else []
            held = [granules(layer.size_bytes) for i, layer in enumerate(layers) if i not in streamed]
            used = sizes.leftover_bytes + sizes.buffer_bytes + sum(slots) + sum(held)
            assert allocated(shared) - before == used, name
            streamer.finish()
            self.tables += sum(table.weight.nbytes for table in streamer._tables)
            streamer.detach()


def tensors(module: nn.Module) -> list[torch.Tensor]:
    return [*module.parameters(), *module.buffers()]


@pytest.mark.parametrize(("name", "dtype"), [pytest.param(*case, marks=marks_of(case)) for case in CASES])
def test_the_inventory_is_what_the_engine_packs(
    name: str,
    dtype: str,
    tiny_folder: Callable[[str], Path],
    world: World,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(owners, "TABLE_BYTES", SMALL_TABLE_BYTES)
    spec = spec_of(name, tiny_folder, dtype)
    graph = build_graph(spec)
    sizes = inventory(spec, graph.used_components())
    rig = Rig(sizes)
    store = load_store(spec, graph, {}, EventBus(), torch.device("sim", 0), place=rig)
    assert set(rig.seen) == set(sizes) == set(store.modules())
    assert rig.tables == sum(component.table_bytes for component in sizes.values())
    assert all(component.source == "headers" and not component.notes for component in sizes.values())
    assert {component.dtype for component in sizes.values()} == {dtype}
