"""Compiled blocks: one compilation for a class and a shape, none for moving weights, undone after the run."""

import functools
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numerics_builders as build
import pytest
import torch
from torch import nn

from framework.compilers import compile_problems
from framework.errors import ConfigError
from framework.runtime import compiled
from framework.runtime.compiled import compiled_blocks, find_blocks
from framework.runtime.store import ComponentStore
from framework.spec import NumericsSpec, RequestSpec
from framework.step_caches import StepCache

BLOCKS = NumericsSpec(compile="blocks")


@pytest.fixture
def count(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[Any]]:
    """Graphs as they are compiled: instead of kernels, torch computes what it traced."""
    torch._dynamo.reset()
    graphs: list[Any] = []

    def backend(graph: torch.fx.GraphModule, inputs: list[Any]) -> Any:
        graphs.append(graph)
        return graph.forward

    monkeypatch.setattr(compiled, "compiled_blocks", functools.partial(compiled_blocks, backend=backend))
    yield graphs
    torch._dynamo.reset()


@pytest.fixture
def placed_on_the_cpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let modes have their effect on the CPU too: the simulated device cannot be traced."""
    monkeypatch.setattr("framework.runtime.run.effective_placements", lambda chosen, *rest: dict(chosen))


def with_two_sizes() -> tuple[RequestSpec, ...]:
    short: dict[str, Any] = {"num_inference_steps": 2, "guidance_scale": 1.0}  # a step for each expert
    first, again = build.two_requests(**short)
    return first, build.two_requests(**short, height=64)[0], again


@pytest.mark.usefixtures("placed_on_the_cpu")
@pytest.mark.parametrize(
    "mode", ["layerwise-offload", *(pytest.param(mode, marks=pytest.mark.slow) for mode in build.MODES[:2])]
)
def test_only_another_size_compiles_again_and_bytes_are_those_of_the_plain_run(
    mode: str, count: list[Any], tiny_folder: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    after: list[int] = []
    end = ComponentStore.end_request

    def ended(store: ComponentStore) -> None:
        after.append(len(count))
        end(store)

    monkeypatch.setattr(ComponentStore, "end_request", ended)
    spec, wanted = build.wan(tiny_folder, "wan22"), with_two_sizes()
    made = build.make(spec, BLOCKS, *wanted, mode=mode, device="cpu")
    assert after == [1, 2, 2]  # both experts and all their blocks share one
    first, other = build.make(spec, NumericsSpec(), *wanted[:2], device="cpu").frames
    assert all(torch.equal(*pair) for pair in zip(made.frames, (first, other, first), strict=True))


@pytest.mark.usefixtures("placed_on_the_cpu")
@pytest.mark.slow
def test_a_step_cache_decides_outside_of_what_is_compiled(count: list[Any], tiny_folder: Callable[[str], Path]) -> None:
    cache = StepCache(method="first_block", options=(("threshold", 100.0),))
    spec, wanted = build.wan(tiny_folder), build.two_requests()
    both = NumericsSpec(compile="blocks", step_cache=cache)
    made = build.make(spec, both, *wanted, mode="layerwise-offload", device="cpu")
    plain = build.make(spec, NumericsSpec(step_cache=cache), *wanted, device="cpu")
    assert len(count) == 1
    assert all(torch.equal(one, other) for one, other in zip(made.frames, plain.frames, strict=True))


def test_blocks_are_as_before_afterwards_even_where_they_were_wrapped(loaded_stores: Callable[[str], Any]) -> None:
    transformer = loaded_stores("wan21")[2].module("transformer")
    blocks = find_blocks("transformer", transformer)
    assert len(blocks) == len(transformer.blocks)
    for block in blocks:
        vars(block).pop("forward", None)  # a cache of another test leaves a forward that is the class's own
    wrapped = vars(blocks[1])["forward"] = functools.partial(type(blocks[1]).forward, blocks[1])
    with compiled_blocks("blocks", {"transformer": transformer}, {}, "eager"):
        assert all("forward" in vars(block) for block in blocks)
        assert vars(blocks[1])["forward"] is not wrapped
    assert ["forward" in vars(block) for block in blocks] == [block is blocks[1] for block in blocks]
    assert vars(blocks[1]).pop("forward") is wrapped


def test_the_layers_of_the_yaml_stand_in_for_blocks_that_diffusers_does_not_name() -> None:
    module = nn.Sequential(nn.ModuleList([nn.Linear(1, 1), nn.Linear(1, 1)]))
    assert len(find_blocks("transformer", module, ("0",))) == 2
    with pytest.raises(ConfigError, match=r"nobody names the repeated blocks of 'unet' \(Linear\); set pipeline.comp"):
        find_blocks("unet", nn.Linear(1, 1))
    with pytest.raises(ConfigError, match="no denoiser whose blocks could be compiled"):
        compiled_blocks("blocks", {}, {}).__enter__()


def refusals(device: str | None, machine: bool = True) -> list[str]:
    return [str(problem) for problem in compile_problems("blocks", device, machine=machine)]


def test_what_a_machine_lacks_is_refused_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    assert refusals("sim") == [
        "numerics.compile: there are no kernels to compile for sim; set it to off; it compiles for cpu, cuda, mps"
    ]
    monkeypatch.setattr("shutil.which", lambda name: None)
    assert "there is no C++ compiler, which torch needs to compile for the CPU" in refusals("cpu")[0]
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    assert "needs the package 'triton'" in refusals("cuda")[0]
    monkeypatch.setattr("importlib.util.find_spec", lambda name: name)
    assert "there is no C compiler, which Triton needs" in refusals("cuda")[0]
    assert refusals("cpu", machine=False) == refusals(None) == refusals("mps") == []
    assert list(compile_problems("off", "sim")) == []


@pytest.mark.slow
@pytest.mark.skipif(bool(refusals("cpu")), reason="needs a C++ compiler")
def test_torchs_own_compiler_makes_the_same_picture_up_to_rounding(tiny_folder: Callable[[str], Path]) -> None:
    spec, wanted = build.wan(tiny_folder), build.two_requests(num_inference_steps=1)
    made = build.make(spec, BLOCKS, *wanted, device="cpu")
    plain = build.make(spec, NumericsSpec(), wanted[0], device="cpu")
    assert torch.equal(made.frames[0], made.frames[1])
    assert torch.allclose(made.frames[0], plain.frames[0], atol=1e-3)
