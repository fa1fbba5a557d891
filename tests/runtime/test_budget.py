"""Bounds of a run: never more than said of device, pinned, host and disk, and what cannot fit is refused by name."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import spec_builders
import torch
from spec_builders import request, run_spec

from framework.errors import PlanError
from framework.graph import build_graph
from framework.loading.components import find_part
from framework.loading.index import read_index
from framework.memory.host_store import HostStore
from framework.platforms import make_platform
from framework.platforms.sim.testing import sim as sim
from framework.platforms.sim.world import World
from framework.runtime.budget import bounded, disk_bytes
from framework.runtime.events import ComponentLoading, Event, EventBus, MemoryMeasured
from framework.runtime.run import execute
from framework.spec import Bound, BudgetSpec, ComponentSpec, ModelSpec, PipelineSpec

Folder = Callable[[str], Path]
NAMES = ("text_encoder", "transformer", "vae")
LAYERWISE = dict.fromkeys(NAMES, "layerwise-offload")
RESIDENT = dict.fromkeys(NAMES, "resident")
WHOLE = dict.fromkeys(NAMES, "component-offload")
FREE = BudgetSpec()


def of(size_bytes: int) -> Bound:
    return Bound(str(size_bytes), size_bytes=size_bytes)


class Bounded:
    """Runs the tiny Wan 2.1 on `sim` under a budget and looks at the books."""

    def __init__(self, folder: Folder, **model: Any) -> None:
        source = ModelSpec(source=str(folder("wan21")), **{"dtype": "float32", **model})
        self.pipeline: PipelineSpec = spec_builders.pipeline("wan21", folder, model=source)
        self.loading: list[Event] = []
        self.peak_bytes = 0

    def run(self, modes: dict[str, str], budget: BudgetSpec = FREE, on: str = "sim") -> torch.Tensor:
        spec = run_spec(self.pipeline, request(), modes=modes, device=on, budget=budget)
        self.loading.clear()
        result = execute(spec, build_graph(self.pipeline), EventBus(self.hear), keep=("frames",))
        frames: torch.Tensor = result.requests[0].values["frames"].data
        return frames

    def hear(self, event: Event) -> None:
        """Keep what tells of loading and memory; other events hold tensors of the device."""
        if isinstance(event, ComponentLoading):
            self.loading.append(event)
        if isinstance(event, MemoryMeasured):
            self.peak_bytes = event.device_peak_bytes or 0

    def sizes(self) -> dict[str, int]:
        index = read_index(Path(self.pipeline.model.source))
        return {name: find_part(index, self.pipeline.model, ComponentSpec(name=name)).run_bytes for name in NAMES}

    def refusal(self, modes: dict[str, str], budget: BudgetSpec, on: str = "sim") -> str:
        """The line of a run that is refused before it reads a weight."""
        with pytest.raises(PlanError) as caught:
            self.run(modes, budget, on)
        assert not self.loading
        return str(caught.value)


@pytest.fixture
def tiny(tiny_folder: Folder, sim: World) -> Bounded:
    return Bounded(tiny_folder)


@pytest.fixture
def books(monkeypatch: pytest.MonkeyPatch) -> list[HostStore]:
    """Every host store that a run makes."""
    made: list[HostStore] = []
    plain = HostStore.look_at_files

    def look(store: HostStore) -> None:
        if store not in made:
            made.append(store)
        plain(store)

    monkeypatch.setattr(HostStore, "look_at_files", look)
    return made


def test_an_allocation_beyond_the_device_s_bound_fails_and_the_bound_ends_with_the_run(sim: World) -> None:
    platform = make_platform("sim")
    before = platform.memory().free_bytes
    with bounded(platform, BudgetSpec(device=of(4096))) as budgets:
        assert (budgets.device, platform.memory().free_bytes) == (4096, 4096)
        held = platform.reserve(4096)
        with pytest.raises(torch.OutOfMemoryError):
            platform.reserve(1)
        del held
    assert platform.memory().free_bytes == before
    with bounded(platform, BudgetSpec(device=Bound("50%", share=0.5))) as budgets:
        assert budgets.device == platform.memory().total_bytes // 2


def test_a_run_within_its_device_bound_makes_the_same_picture(tiny: Bounded) -> None:
    free = tiny.run(RESIDENT)
    all_resident = tiny.peak_bytes
    tiny.run(LAYERWISE)
    need = tiny.peak_bytes
    assert need < all_resident, "or streaming would save nothing"
    assert torch.equal(tiny.run(LAYERWISE, BudgetSpec(device=of(need))), free)
    assert tiny.peak_bytes <= need


def test_what_cannot_fit_on_the_device_is_refused_before_a_weight_is_read(tiny: Bounded) -> None:
    all_bytes = sum(tiny.sizes().values())
    text = tiny.refusal(RESIDENT, BudgetSpec(device=of(all_bytes - 1)))
    assert text.startswith("the weights that stay on the device (text_encoder, transformer, vae) take ")
    assert "budget.device leaves" in text
    assert "component_residency.transformer=layerwise-offload" in text
    text = tiny.refusal(WHOLE, BudgetSpec(device=of(tiny.sizes()["text_encoder"] - 1)))
    assert "uses text_encoder: with component-offload" in text


@pytest.mark.parametrize("size_bytes", [0, 200_000])
def test_no_more_is_pinned_than_said_staging_included(tiny: Bounded, sim: World, size_bytes: int) -> None:
    free = tiny.run(LAYERWISE)
    assert sim.pinned.peak_bytes > size_bytes
    sim.pinned.peak_bytes = sim.pinned.live_bytes
    assert torch.equal(tiny.run(LAYERWISE, BudgetSpec(pinned=of(size_bytes))), free)
    assert sim.pinned.peak_bytes <= size_bytes
    assert (sim.pinned.peak_bytes > 0) == (size_bytes > 0), "and what is allowed is used"


def test_layers_beyond_the_host_s_bound_stay_in_the_file(tiny: Bounded, books: list[HostStore]) -> None:
    free = tiny.run(RESIDENT)
    books.clear()
    tiny.run(WHOLE)
    whole = books[0].host.held_bytes
    books.clear()
    assert torch.equal(tiny.run(WHOLE, BudgetSpec(host=of(whole // 2))), free)
    assert 0 < books[0].host.held_bytes <= whole // 2


def test_weights_in_another_dtype_than_the_file_s_are_refused_beyond_the_host_s_bound(
    tiny_folder: Folder, sim: World
) -> None:
    tiny = Bounded(tiny_folder, dtype="bfloat16")
    text = tiny.refusal(WHOLE, BudgetSpec(host=of(1000)))
    assert text.startswith("in another dtype than the file's, the weights of text_encoder, transformer, vae take ")
    assert text.endswith("raise it, or set pipeline.model.dtype=null")


def test_on_the_cpu_all_weights_are_the_host_s(tiny_folder: Folder, one_thread: None) -> None:
    tiny = Bounded(tiny_folder)
    need = sum(tiny.sizes().values())
    assert tiny.refusal({}, BudgetSpec(host=of(need - 1)), "cpu").startswith("on the cpu all weights of text_encoder, ")
    tiny.run({}, BudgetSpec(host=of(need)), "cpu")


def test_the_disk_s_bound_is_by_the_disk_that_the_folder_lies_on(tmp_path: Path) -> None:
    folder = tmp_path / "not" / "there" / "yet"
    assert disk_bytes(BudgetSpec(), folder) is None
    assert disk_bytes(BudgetSpec(disk=of(7)), folder) == 7
    free = disk_bytes(BudgetSpec(disk=Bound("free")), folder)
    assert free is not None
    assert free > 0
    assert disk_bytes(BudgetSpec(disk=Bound("50%", share=0.5)), folder) is not None
