"""What a pass over shapes foresees is what a run on the simulated device does: peaks, calls, kernels, arithmetic."""

import gc
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest
import spec_builders
import tiny_pipelines
import torch
import whole_builders
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

from framework.graph import build_graph
from framework.loading.load import load_store
from framework.planning.facts import RunWork, StageWork, Work
from framework.planning.profile_run import profile_request
from framework.planning.profile_source import describe
from framework.platforms.sim.backend import install
from framework.platforms.sim.platform import SimPlatform
from framework.platforms.sim.world import World, start
from framework.runtime.events import Event, EventBus, StageFinished, StageStarted
from framework.runtime.placing import make_placed
from framework.runtime.scheduler import run_requests
from framework.spec import PipelineSpec, RequestSpec

DEFAULT = ("wan22", "sdxl")
REST = sorted(set(tiny_pipelines.BUILDERS) - set(DEFAULT))
PIPELINES = [*DEFAULT, *(pytest.param(name, marks=pytest.mark.slow) for name in REST)]
Subject = tuple[PipelineSpec, RequestSpec]


@dataclass
class Measured:
    """One request on the simulated device, all resident; peaks are without the weights."""

    peaks: dict[str, int] = field(default_factory=dict)
    calls: Counter[str] = field(default_factory=Counter)
    num_kernels: int = 0


@pytest.fixture(scope="module")
def subjects(tiny_folder: Callable[[str], Path], tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Subject]:
    picture = tmp_path_factory.mktemp("picture") / "start.png"
    tiny_pipelines.start_picture().save(picture)

    def build(name: str) -> Subject:
        if name == "wan22":
            request = spec_builders.request(num_frames=5, num_inference_steps=4)
            return spec_builders.pipeline(name, tiny_folder), request
        spec = whole_builders.whole(tiny_folder(name), whole_builders.tiny_args(name))
        return spec, whole_builders.tiny_request(name, lambda: picture, num_inference_steps=2)

    return build


@pytest.fixture(scope="module")
def foreseen(subjects: Callable[[str], Subject]) -> Callable[[str], RunWork]:
    """Return the work of a tiny pipeline's request, passed through once."""
    found: dict[str, RunWork] = {}

    def work(name: str) -> RunWork:
        if name not in found:
            found[name] = profile(*subjects(name))[0]
        return found[name]

    return work


def profile(spec: PipelineSpec, request: RequestSpec, target: str = "sim") -> tuple[RunWork, bool]:
    run_spec = spec_builders.run_spec(spec, request)
    return profile_request(run_spec, build_graph(spec), request, describe(spec), target)


def measure(spec: PipelineSpec, request: RequestSpec) -> Measured:
    install()
    world = start(World())
    graph, platform, found = build_graph(spec), SimPlatform(), Measured()
    placed = make_placed(spec, graph, {}, platform)
    ledger = world.devices[0].ledger
    store = load_store(spec, graph, {}, EventBus(), platform.device, place=placed.strategy)
    weights, kernels = ledger.live_bytes, world.num_kernels

    def hear(event: Event) -> None:
        if isinstance(event, StageStarted):
            ledger.reset_peak()
        if isinstance(event, StageFinished):
            found.peaks[event.stage] = ledger.peak_bytes - weights

    for name, hook in store.hooks.items():
        before = hook.pre_forward

        def counted(module: Any, *args: Any, name: str = name, before: Any = before, **kwargs: Any) -> Any:
            found.calls[name] += 1
            return before(module, *args, **kwargs)

        hook.pre_forward = counted  # type: ignore[method-assign]
    run_requests(spec_builders.run_spec(spec, request), graph, store, EventBus(hear), placed=placed)
    found.num_kernels = world.num_kernels - kernels
    placed.close()
    del store
    gc.collect()
    return found


def peak_of(stage: StageWork) -> int:
    return max([stage.extra_bytes, *(one.call.live_bytes + one.call.activation_bytes for one in stage.calls)])


def works_of(work: RunWork) -> list[tuple[Work, int]]:
    """Every stretch of work with how often it is done."""
    found = [(stage.outside, 1) for stage in work.stages]
    for one in (one for stage in work.stages for one in stage.calls):
        found += [(part, one.count) for part in (one.call.before, *one.call.layer_work, one.call.after)]
    return found


def counted_calls(work: RunWork) -> Counter[str]:
    found: Counter[str] = Counter()
    for one in (one for stage in work.stages for one in stage.calls):
        found[one.call.component] += one.count
    return found


@pytest.mark.parametrize("name", PIPELINES)
def test_peaks_calls_and_kernels_are_those_of_a_run(
    name: str, subjects: Callable[[str], Subject], foreseen: Callable[[str], RunWork]
) -> None:
    work, measured = foreseen(name), measure(*subjects(name))
    assert {stage.stage: peak_of(stage) for stage in work.stages} == measured.peaks
    assert counted_calls(work) == measured.calls
    kernels = sum(kernel.count * times for part, times in works_of(work) for kernel in part.kernels)
    assert abs(kernels - measured.num_kernels) <= 0.005 * measured.num_kernels
    assert work.exact


@pytest.mark.parametrize("name", ["sdxl", pytest.param("flux", marks=pytest.mark.slow)])
def test_arithmetic_is_what_torch_counts(
    name: str, subjects: Callable[[str], Subject], foreseen: Callable[[str], RunWork], plain_pipeline: Any
) -> None:
    counter = FlopCounterMode(display=False)
    with counter, sdpa_kernel(SDPBackend.MATH):
        whole_builders.plain_frames(plain_pipeline(name), name, subjects(name)[1])
    parts = works_of(foreseen(name))
    flops = sum((one.matmul_flops + one.attention_flops + one.conv_flops) * times for one, times in parts)
    assert flops == pytest.approx(counter.get_total_flops(), rel=0.01)


def test_each_expert_has_its_steps(foreseen: Callable[[str], RunWork]) -> None:
    denoise = next(stage for stage in foreseen("wan22").stages if stage.stage == "denoise")
    told = [(one.call.component, one.count, one.steps) for one in denoise.calls]
    assert told == [("transformer", 4, (1, 2)), ("transformer_2", 4, (3, 4))]


def test_layers_are_told_in_the_order_they_run_with_their_work(foreseen: Callable[[str], RunWork]) -> None:
    transformer = next(one.call for one in foreseen("flux").stages[0].calls if one.call.component == "transformer")
    stacks = [("transformer_blocks", index) for index in range(3)]
    assert transformer.layers == (*stacks, *(("single_transformer_blocks", index) for index in range(4)))
    assert len(transformer.layer_work) == len(transformer.layers)
    assert len(set(transformer.layer_work[:3])) == 1, "blocks alike do work alike"
    assert all(one.attention_flops and one.matmul_flops and one.activation_bytes for one in transformer.layer_work)
    assert transformer.reads_outside == ()


def test_weights_read_outside_their_layer_are_named() -> None:
    from framework.planning.profile_calls import WatchedComponent
    from framework.planning.profile_dispatch import ShapePass
    from framework.planning.profile_modules import _put_on_device

    class Peeks(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.blocks = torch.nn.ModuleList(torch.nn.Linear(4, 4, device="meta") for _ in range(2))

        def forward(self, value: torch.Tensor) -> torch.Tensor:
            return self.blocks[1](self.blocks[0](value)) * self.blocks[0].weight.sum()

    class Log:
        def __init__(self) -> None:
            self.works: list[Any] = []

        def begin_call(self) -> None: ...

        def end_call(self, work: Any) -> None:
            self.works.append(work)

    install()
    pass_, log, module = ShapePass("sim"), Log(), Peeks()
    with torch.inference_mode(), pass_:
        _put_on_device(module, pass_.memory, "part")
        WatchedComponent("part", module, ("blocks",), pass_, log)
        module(torch.ones(2, 4, device="sim:0"))
    assert log.works[0].reads_outside == ("blocks.0.weight",)


def test_a_table_made_at_the_first_call_is_charged_once(foreseen: Callable[[str], RunWork]) -> None:
    """Qwen-Image brings its rope tables to the device when it first needs them, and keeps them."""
    calls = [one.call for one in foreseen("qwen_image").stages[0].calls if one.call.component == "transformer"]
    tables_bytes = 2 * 4096 * 8 * 8  # of 4096 places and 8 complex numbers each
    assert calls[-1].live_bytes - calls[0].live_bytes >= tables_bytes
    assert calls[0].activation_bytes - calls[-1].activation_bytes >= tables_bytes


def test_other_texts_change_qwen_image_but_not_flux(subjects: Callable[[str], Subject]) -> None:
    spec, request = subjects("flux")
    assert not profile(spec, replace(request, num_inference_steps=1))[1]
    spec, request = subjects("qwen_image")
    assert profile(spec, replace(request, num_inference_steps=1))[1]


def test_another_device_launches_what_its_library_launches(
    subjects: Callable[[str], Subject], foreseen: Callable[[str], RunWork]
) -> None:
    spec, request = subjects("flux")
    simulated, cuda = foreseen("flux"), profile(spec, request, "cuda")[0]
    flops = [sum(part.matmul_flops * times for part, times in works_of(work)) for work in (simulated, cuda)]
    assert flops[0] == flops[1]
    assert sum(p.launches * t for p, t in works_of(cuda)) > sum(p.launches * t for p, t in works_of(simulated))
