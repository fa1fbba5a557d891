"""Which parcels are pinned, copied or left in their file, and what that takes of the host."""

from dataclasses import replace

import plan_cases as cases
import pytest

from framework.memory.host_budget import HostMemory
from framework.planning.facts import Budgets, Choice
from framework.planning.forecast import forecast
from framework.planning.host import file_bytes, host_use
from framework.planning.packing import CHUNK_BYTES, granules, layer_bytes, parcels, resident_bytes, whole_bytes
from framework.planning.problem import LAYERWISE, RESIDENT, WHOLE, PlanProblem
from framework.platforms.hardware import GIB


def streamed(problem: PlanProblem, tier: str = "pinned", **knobs: object) -> dict[str, Choice]:
    found = {}
    for name, part in problem.components.items():
        none = (0,) * len(part.stacks)
        mode = LAYERWISE if part.stacks else WHOLE
        found[name] = replace(
            Choice(component=name, mode=mode, prefetch=none, resident=none, tier=tier),
            **(knobs if part.stacks else {}),  # type: ignore[arg-type]
        )
    return found


def test_the_pin_budget_goes_to_what_is_read_most() -> None:
    problem = cases.wan("rtx_4090", budgets=Budgets(pinned=30 * 10**9))
    traffic = host_use(problem, streamed(problem)).traffic
    assert set(traffic["transformer"].tiers) == {"pinned"}
    assert traffic["transformer_2"].tiers.count("pinned") == 1  # what was left
    assert "pinned" not in traffic["text_encoder"].tiers


def test_what_the_host_has_no_room_for_stays_in_its_file() -> None:
    problem = cases.wan("rtx_3060_12gb")
    found = host_use(problem, streamed(problem))
    assert found.mapped >= {"text_encoder"}
    assert found.host_bytes <= problem.host_bytes + 64 * 1024**2
    assert found.over_bytes == 0


def test_cast_weights_cannot_stay_in_their_file() -> None:
    problem = cases.wan("rtx_3060_12gb")
    cast = {name: replace(part, file_dtype="float64") for name, part in problem.components.items()}
    assert host_use(replace(problem, components=cast), streamed(problem)).over_bytes > 20 * 10**9


def test_loading_a_cast_component_takes_its_size_for_a_moment() -> None:
    part = cases.sizes("transformer", "dit", [[1e9] * 4], 0.1e9, file_dtype="float32")
    problem = replace(cases.qwen("h100"), components={"transformer": part})
    found = host_use(problem, {"transformer": Choice(component="transformer", mode=RESIDENT, tier="device")})
    assert found.transient_bytes >= part.size_bytes
    assert found.pinned_bytes == 0


def test_a_mapped_component_is_read_in_every_pass() -> None:
    problem = replace(cases.qwen("rtx_4090"), host=HostMemory(64 * GIB, 8 * GIB))
    found = forecast(problem, streamed(problem, "mapped"))
    assert found.disk_bytes > 99 * 38 * 10**9
    assert found.stages[0].bound_by == "disk"


def test_permanent_layers_leave_nothing_on_the_host() -> None:
    problem = cases.qwen("h100")
    kept = streamed(problem, resident=(40,), lifetime="permanent")
    use = streamed(problem, resident=(40,))
    layer = problem.components["transformer"].stacks[0].layers[0].size_bytes
    assert host_use(problem, use).pinned_bytes - host_use(problem, kept).pinned_bytes >= 40 * layer


def test_the_bytes_of_files_are_those_of_their_dtype() -> None:
    part = cases.sizes("a", "dit", [], 1000, file_dtype="float32")
    assert file_bytes(part) == 2000
    assert file_bytes(replace(part, file_bytes=1234)) == 1234


@pytest.mark.parametrize(("size", "aligned", "whole"), [(0, 0, 0), (1, 256, 512), (257, 512, 512), (513, 768, 1024)])
def test_tensors_are_aligned_and_parcels_rounded(size: int, aligned: int, whole: int) -> None:
    assert layer_bytes([size]) == aligned
    assert resident_bytes([size]) == granules(size) == whole_bytes([size]) == whole


def test_what_moves_whole_travels_in_chunks() -> None:
    assert parcels([CHUNK_BYTES - 1, 10, 10]) == (CHUNK_BYTES + 256, 256)
    assert parcels([]) == ()
