"""Small components on the simulated device, run by the real residency engine, and the same run as planner's facts.

Imports torch. A component has stacks of blocks of one product each, a head, an odd-sized weight and a buffer outside
them. `Row` counts make the arithmetic, so that compute and copies are in any ratio.
"""

import dataclasses
import gc
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from framework.errors import StageError
from framework.graph import Graph, Node
from framework.memory.courier import STAGING_BYTES, Courier
from framework.memory.host_budget import HostMemory
from framework.memory.host_ledger import HostLedger
from framework.memory.host_store import HostStore
from framework.memory.pin_ledger import PinLedger
from framework.memory.resources import Resources, _book_staging
from framework.planning import packing
from framework.planning.facts import (
    Budgets,
    CallCount,
    CallWork,
    Choice,
    ComponentSizes,
    Kernel,
    LayerSize,
    RunWork,
    StackSizes,
    StageWork,
    Work,
)
from framework.planning.packing import granules
from framework.planning.problem import NO_RESERVE, PlanProblem
from framework.platforms import make_platform
from framework.platforms.hardware import GIB, HardwareProfile, load_hardware
from framework.platforms.sim.backend import install
from framework.platforms.sim.testing import assert_idle
from framework.platforms.sim.world import World, start
from framework.runtime.events import EventBus
from framework.runtime.placed import Placed
from framework.runtime.residency import ResidencyManager
from framework.runtime.sharing import ring_names
from framework.runtime.store import ComponentStore
from framework.spec import ComponentUse, Knob, Placement, StageSpec

WIDTH = 64
PLENTY = HostMemory(64 * GIB, 64 * GIB)
ITEM = 2  # bytes of bfloat16


class Block(nn.Module):
    """One product of `rows` rows; its result is dropped."""

    def __init__(self, columns: int, rows: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(columns, WIDTH, dtype=torch.bfloat16), requires_grad=False)
        self.rows = rows

    def forward(self, x: Tensor) -> Tensor:
        F.linear(x[: self.rows], self.weight)
        return x


class Model(nn.Module):
    """`stacks` are (columns, rows) of each block."""

    def __init__(self, stacks: Sequence[Sequence[tuple[int, int]]]) -> None:
        super().__init__()
        self.head = nn.Parameter(torch.zeros(96, WIDTH, dtype=torch.bfloat16), requires_grad=False)
        self.odd = nn.Parameter(torch.zeros(321, dtype=torch.bfloat16), requires_grad=False)
        self.stacks = nn.ModuleList(nn.ModuleList(Block(*block) for block in stack) for stack in stacks)
        self.register_buffer("shift", torch.zeros(WIDTH, dtype=torch.bfloat16))

    def forward(self, x: Tensor) -> Tensor:
        F.linear(x, self.head)
        for stack in self.stacks:
            for block in stack:  # type: ignore[attr-defined]
                x = block(x)
        x + self.shift  # type: ignore[operator]
        return x


@dataclass(frozen=True)
class Part:
    """A component: its stacks, its group, and how often each stage calls it."""

    stacks: tuple[tuple[tuple[int, int], ...], ...]
    group: str = "dit"
    rows: int = 64


@dataclass(frozen=True)
class Script:
    """Stages with their uses, and the calls of each: (component, how often)."""

    parts: Mapping[str, Part]
    uses: Mapping[str, tuple[ComponentUse, ...]]
    calls: Mapping[str, tuple[tuple[str, int], ...]]
    profile: HardwareProfile = field(default_factory=lambda: load_hardware("rtx_4090"))
    pinned: int | None = None  # what may be page-locked, in bytes
    parked: frozenset[str] = frozenset()
    stepped: bool = False  # the stage `denoise` says its steps, a call each


def sizes_of(name: str, part: Part) -> ComponentSizes:
    """Return what a header of the component would tell."""
    layers = [[columns * WIDTH * ITEM for columns, _ in stack] for stack in part.stacks]
    outside = (96 * WIDTH * ITEM, 321 * ITEM)
    tensors = (*outside, *(size for stack in layers for size in stack))
    buffers = (WIDTH * ITEM,)
    stacks = tuple(
        StackSizes(f"stacks.{i}", tuple(LayerSize(packing.layer_bytes([size]), 1) for size in stack))
        for i, stack in enumerate(layers)
    )
    return ComponentSizes(
        name=name,
        group=part.group,
        class_name="Model",
        dtype="bfloat16",
        file_dtype="float32",
        size_bytes=sum(tensors) + sum(buffers),
        stacks=stacks,
        leftover_bytes=packing.layer_bytes(outside),
        buffer_bytes=packing.layer_bytes(buffers),
        resident_bytes=packing.resident_bytes((*tensors, *buffers)),
        whole_bytes=packing.whole_bytes(tensors, buffers),
        source="headers",
    )


def call_of(name: str, part: Part, inputs: int = 0) -> CallWork:
    """Return the work of one forward, `inputs` bytes being alive meanwhile."""
    layers = [(f"stacks.{i}", j) for i, stack in enumerate(part.stacks) for j in range(len(stack))]
    blocks = [block for stack in part.stacks for block in stack]
    made = [rows * columns * ITEM for columns, rows in blocks] + [part.rows * 96 * ITEM, part.rows * WIDTH * ITEM]
    adding = Kernel("", 0.0, (2 * part.rows * WIDTH + WIDTH) * ITEM)
    return CallWork(
        component=name,
        entry_point="forward",
        layers=tuple(layers),
        layer_work=tuple(_product(rows, columns) for columns, rows in blocks),
        before=_product(part.rows, 96),
        after=Work(touched_bytes=adding.size_bytes, launches=1, kernels=(adding,)),
        activation_bytes=max(granules(size) for size in made),
        live_bytes=inputs,
    )


def _product(rows: int, columns: int) -> Work:
    flops = 2.0 * rows * columns * WIDTH
    touched = (rows * WIDTH + columns * WIDTH + rows * columns) * ITEM
    kernel = Kernel("matmul", flops, touched)
    return Work(matmul_flops=flops, touched_bytes=touched, launches=1, kernels=(kernel,))


def problem_of(script: Script) -> PlanProblem:
    """Return the script as the planner gets it; the inputs of all components lie on the device all the time."""
    inputs = sum(granules(part.rows * WIDTH * ITEM) for part in script.parts.values())
    calls = {name: call_of(name, part, inputs) for name, part in script.parts.items()}
    stages = tuple(
        StageWork(
            stage=stage,
            calls=tuple(
                CallCount(call=calls[n], count=k, steps=(0, k) if script.stepped and stage == "denoise" else None)
                for n, k in called
            ),
            extra_bytes=inputs,
        )
        for stage, called in script.calls.items()
    )
    return PlanProblem(
        components={name: sizes_of(name, part) for name, part in script.parts.items()},
        work=RunWork(stages=stages),
        uses=script.uses,
        hardware=script.profile,
        budgets=Budgets(pinned=script.pinned),
        reserve=NO_RESERVE,
        host=PLENTY,
        parked=script.parked,
    )


@dataclass
class Measured:
    """What the simulated machine says: peak bytes of each stage, virtual seconds of the request, pinned bytes."""

    peaks: dict[str, int]
    seconds: float
    pinned_bytes: int


class OutOfRoom(Exception):
    """The device had too little memory; the message is the stage's name."""


def run(script: Script, choices: Mapping[str, Choice], capacity_bytes: int | None = None) -> Measured:
    """Run one request of the script on the real engine. Raises `OutOfRoom`."""
    install()
    machine = start(World(script.profile, capacity_bytes=capacity_bytes))
    measured = _measure(script, choices, machine)
    gc.collect()
    assert_idle(machine)
    return measured


def _measure(script: Script, choices: Mapping[str, Choice], machine: World) -> Measured:
    platform = make_platform("sim")
    nodes = tuple(_node(stage, script.uses.get(stage, ())) for stage in script.calls)
    graph = Graph(nodes)
    placements = {name: placement_of(choice, script.parts[name].group) for name, choice in choices.items()}
    groups = {name: part.group for name, part in script.parts.items()}
    ledger, host = PinLedger(PLENTY, script.pinned), HostLedger()
    staging_bytes = STAGING_BYTES if script.pinned is None else _book_staging(platform, ledger, host)
    resources = Resources(
        Courier(platform, staging_bytes),
        HostStore(platform, ledger, memory=lambda: PLENTY, host=host),
        layers={n: tuple(f"stacks.{i}" for i in range(len(part.stacks))) for n, part in script.parts.items()},
        ring_names=ring_names(graph, placements, groups),
        parked=script.parked,
    )
    placed = Placed(placements, resources)
    modules = {name: Model(part.stacks) for name, part in script.parts.items()}
    store = ComponentStore(
        pipeline_class=None,
        components=dict(modules),
        options={},
        managed=frozenset(modules),
        device=platform.device,
        identities={},
    )
    inputs = {
        name: torch.zeros(part.rows, WIDTH, dtype=torch.bfloat16).to(platform.device)
        for name, part in script.parts.items()
    }
    for name in _loading_order(script):
        placed.strategy(name, modules[name])
    try:
        return _request(script, graph, ResidencyManager(store, placed, EventBus(lambda event: None)), inputs, machine)
    finally:
        placed.close()


def _loading_order(script: Script) -> list[str]:
    """Most bytes read in a request first, as the loader has it."""
    reads = dict.fromkeys(script.parts, 1)
    for called in script.calls.values():
        reads |= {name: count for name, count in called if script.parts[name].group == "dit"}
    return sorted(script.parts, key=lambda name: -(sizes_of(name, script.parts[name]).size_bytes or 0) * reads[name])


def _request(
    script: Script, graph: Graph, manager: ResidencyManager, inputs: Mapping[str, Tensor], machine: World
) -> Measured:
    machine.synchronize()
    begun, peaks = machine.host_s, {}
    ledger = machine.devices[0].ledger
    manager.begin_request(graph, 0)
    for index, (stage, called) in enumerate(script.calls.items()):
        ledger.reset_peak()
        try:
            _stage(manager, index, called, inputs, script.stepped and stage == "denoise")
        except (StageError, torch.OutOfMemoryError) as error:
            manager.finish_request()
            raise OutOfRoom(stage) from error.with_traceback(None)
        peaks[stage] = ledger.peak_bytes
    machine.synchronize()
    seconds = machine.host_s - begun
    manager.finish_request()
    return Measured(peaks, seconds, machine.pinned.live_bytes)


def _stage(
    manager: ResidencyManager,
    index: int,
    called: Sequence[tuple[str, int]],
    inputs: Mapping[str, Tensor],
    stepped: bool,
) -> None:
    manager.begin_stage(index)
    order = [name for name, count in called for _ in range(count)]
    before_switch = called[0][1] if len(called) > 1 else None
    with manager.uses_at_call():
        for step, name in enumerate(order, start=1):
            manager._store.module(name)(inputs[name])
            if stepped:
                manager.finish_step(step, len(order), before_switch)
    manager.end_stage()


def _node(stage: str, uses: tuple[ComponentUse, ...]) -> Node:
    spec = StageSpec(name=stage, kind="test")
    return Node(spec=spec, stage_class=None, reads={}, optional_reads={}, writes={}, component_uses=uses)


def placement_of(choice: Choice, group: str | None) -> Placement:
    """Return a choice as the engine takes it; counts alike in all stacks."""
    return Placement(
        component=choice.component,
        group=group,
        mode=choice.mode,
        prefetch=Knob(str(max(choice.prefetch, default=0))),
        resident=Knob(str(max(choice.resident, default=0))),
        policy=choice.policy,
        lifetime=choice.lifetime,
    )


def scaled(profile: HardwareProfile, tflops: float, **options: Any) -> HardwareProfile:
    """A machine whose arithmetic is slow enough for little layers to matter."""
    return dataclasses.replace(profile, bf16_tflops=tflops, **options)
