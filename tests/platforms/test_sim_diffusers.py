"""Unmodified diffusers on `sim`: whole pipelines, accelerate's offload and diffusers' group offload, all bit-equal."""

import copy
from collections.abc import Iterator
from typing import Any

import pytest
import torch

from framework.platforms.sim import SimCompat, World

CALL: dict[str, Any] = {
    "prompt": "a cat",
    "negative_prompt": "bad",
    "height": 32,
    "width": 32,
    "num_frames": 5,
    "num_inference_steps": 2,
    "max_sequence_length": 16,
    "output_type": "pt",
}
GROUPS = {
    "block": {"offload_type": "block_level", "num_blocks_per_group": 1, "use_stream": True},
    "block, recorded": {
        "offload_type": "block_level",
        "num_blocks_per_group": 1,
        "use_stream": True,
        "record_stream": True,
    },
    "leaf": {"offload_type": "leaf_level", "use_stream": True},
}


@pytest.fixture(autouse=True)
def _no_grad() -> Iterator[None]:
    with torch.no_grad():
        yield


def frames(pipeline: Any, **changes: Any) -> torch.Tensor:
    pipeline.set_progress_bar_config(disable=True)
    generator = torch.Generator().manual_seed(0)
    made: torch.Tensor = pipeline(**{**CALL, **changes}, generator=generator).frames
    return made.cpu()


@pytest.fixture(scope="module")
def built() -> dict[str, tuple[Any, torch.Tensor]]:
    """Pipelines on the host with the frames they make there, by name, filled as they are asked for."""
    return {}


def fresh_pipeline(built: dict[str, tuple[Any, torch.Tensor]], name: str) -> tuple[Any, torch.Tensor]:
    import tiny_pipelines

    if name not in built:
        pipeline = tiny_pipelines.build(name)
        built[name] = pipeline, frames(pipeline)
    pipeline, expected = built[name]
    return copy.deepcopy(pipeline), expected


@pytest.mark.parametrize("name", ["wan21", "wan22", "wan_ti2v"])
def test_a_whole_pipeline_is_bit_equal_on_sim(sim: World, built: dict[str, Any], name: str) -> None:
    pipeline, expected = fresh_pipeline(built, name)
    pipeline.to("sim")
    assert torch.equal(frames(pipeline), expected)
    assert sim.num_kernels > 500
    weights = sum(
        p.numel() * 4 for c in pipeline.components.values() if hasattr(c, "parameters") for p in c.parameters()
    )
    assert sim.device(0).ledger.peak_bytes > weights


def test_inference_mode_changes_nothing(sim: World, built: dict[str, Any]) -> None:
    pipeline, expected = fresh_pipeline(built, "wan21")
    with torch.inference_mode():
        pipeline.to("sim")
        assert torch.equal(frames(pipeline), expected)


def test_a_pipeline_that_does_not_fit_runs_out_of_memory(sim: World, built: dict[str, Any]) -> None:
    pipeline, expected = fresh_pipeline(built, "wan21")
    pipeline.to("sim")
    frames(pipeline)
    ledger = sim.device(0).ledger
    ledger.capacity_bytes = ledger.peak_bytes
    assert torch.equal(frames(pipeline), expected)
    ledger.capacity_bytes -= 512
    with pytest.raises(torch.OutOfMemoryError):
        frames(pipeline)


@pytest.mark.parametrize("method", ["enable_model_cpu_offload", "enable_sequential_cpu_offload"])
def test_offload_by_accelerate_is_bit_equal(sim: World, built: dict[str, Any], method: str) -> None:
    pipeline, expected = fresh_pipeline(built, "wan22")
    getattr(pipeline, method)(device="sim")
    assert torch.equal(frames(pipeline), expected)
    assert {move.direction for move in sim.moves} >= {"h2d", "d2h"}


@pytest.mark.parametrize("options", GROUPS.values(), ids=GROUPS.keys())
def test_group_offload_by_diffusers_is_bit_equal_and_without_races(
    sim: World, built: dict[str, Any], options: dict[str, Any]
) -> None:
    pipeline, expected = fresh_pipeline(built, "wan22")
    pipeline.to("sim")
    resident = sim.device(0).ledger.live_bytes
    with SimCompat():
        for part in (pipeline.transformer, pipeline.transformer_2):
            part.enable_group_offload(onload_device=torch.device("sim"), offload_device=torch.device("cpu"), **options)
        assert sim.device(0).ledger.live_bytes < resident
        assert torch.equal(frames(pipeline), expected)
    assert len({move.stream for move in sim.moves}) > 1
