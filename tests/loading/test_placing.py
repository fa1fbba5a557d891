"""Weights go from their file to where the placement wants them: once, in order, and never all through the device."""

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import spec_builders
import torch
from safetensors.torch import load_file, save_file
from spec_builders import Recorder
from torch import Tensor, nn

from framework.errors import LoadError, PlanError
from framework.graph import build_graph
from framework.loading.load import load_store
from framework.loading.weights import own_weights
from framework.memory.host_budget import HostMemory
from framework.memory.mapped_files import MappedFiles
from framework.memory.pin_ledger import GIB
from framework.memory.resources import make_resources
from framework.platforms.sim.testing import sim as sim
from framework.platforms.sim.world import World
from framework.runtime.events import ComponentLoaded, EventBus
from framework.runtime.placed import Placed
from framework.spec import Knob, ModelSpec, Placement

Folder = Callable[[str], Path]
MODES = ("resident", "component-offload", "layerwise-offload")


class Rig:
    """Loads the tiny Wan 2.1 on `sim`; `strategies` are those that took the components."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.device = folder, torch.device("sim", 0)
        self.recorder = Recorder()
        self.resources = make_resources(self.device)
        self.placed = Placed({}, self.resources)
        self.store: Any = None

    def load(self, modes: dict[str, str], dtype: str | None = "float32", **options: Any) -> Any:
        model = ModelSpec(source=str(self.folder), dtype=dtype)
        spec = spec_builders.pipeline("wan21", lambda _: self.folder, model=model)
        placements = {name: placement(name, mode) for name, mode in modes.items()}
        self.placed.change(placements)
        events, place = EventBus(self.recorder), self.placed.strategy
        self.store = load_store(spec, build_graph(spec), placements, events, self.device, place=place, **options)
        return self.store

    def strategy(self, name: str) -> Any:
        return self.placed.strategy(name, self.store.module(name))

    def parcels(self, name: str) -> list[Any]:
        strategy = self.strategy(name)
        held = vars(strategy).get("_streamer") or vars(strategy)["_mover"]
        return [parcel for parcel in held.parcels() if parcel.name != "buffers"]

    def run(self, name: str = "transformer") -> Tensor:
        strategy = self.strategy(name)
        strategy.prepare()
        strategy.wait()
        found: Tensor = call(self.store.module(name), "sim")
        strategy.finish_use()
        return found

    def close(self) -> None:
        self.placed.close()
        vars(self).clear()


def placement(name: str, mode: str) -> Placement:
    knobs = {"prefetch": Knob("1"), "resident": Knob("1")} if mode == "layerwise-offload" else {}
    return Placement(component=name, group=None, mode=mode, **knobs)


def call(module: nn.Module, device: str) -> Tensor:
    generator = torch.Generator().manual_seed(0)
    dtype = module.dtype
    noise = torch.randn(1, 16, 2, 4, 4, generator=generator).to(dtype)
    text = torch.randn(1, 8, 32, generator=generator).to(dtype)
    arguments = (noise.to(device), torch.tensor([500], device=device), text.to(device))
    found: Tensor = module(*arguments, return_dict=False)[0]
    return found.cpu()


@pytest.fixture
def folder(tiny_folder: Folder, tmp_path: Path) -> Path:
    return Path(shutil.copytree(tiny_folder("wan21"), tmp_path / "model"))


@pytest.fixture
def rig(folder: Path, sim: World) -> Iterator[Rig]:
    with torch.no_grad():
        made = Rig(folder)
        yield made
        made.close()


@pytest.fixture
def expected(loaded_stores: Callable[[str], Any]) -> Tensor:
    with torch.no_grad():
        return call(loaded_stores("wan21")[2].module("transformer"), "cpu")


def everywhere(mode: str) -> dict[str, str]:
    return dict.fromkeys(("text_encoder", "transformer", "vae"), mode)


def file_views(folder: Path) -> set[str]:
    """Names of the weight files below `folder` that this process has mapped."""
    lines = Path("/proc/self/maps").read_text().splitlines()
    return {line.split(str(folder) + "/")[1].split("/")[0] for line in lines if str(folder) + "/" in line}


# Tiers


def test_offloaded_components_are_pinned_at_load_and_only_leftovers_are_on_the_device(
    rig: Rig, sim: World, expected: Tensor
) -> None:
    rig.load({"transformer": "layerwise-offload", "text_encoder": "component-offload", "vae": "component-offload"})
    idle = rig.strategy("transformer").idle_bytes
    assert idle <= sim.devices[0].ledger.peak_bytes <= idle + 2 * 512
    parcels = [parcel for name in rig.placed.components() for parcel in rig.parcels(name)]
    assert {parcel.blob.tier for parcel in parcels} == {"pinned"}
    assert torch.equal(rig.run(), expected)


def test_weights_are_views_of_their_file_until_they_are_packed(rig: Rig) -> None:
    """So a copy in memory that the process cannot give back is made once: into the tier."""
    rig.load({"transformer": "layerwise-offload"})
    for parcel in rig.parcels("transformer"):
        assert set(parcel.origins()) == set(parcel.host_weights())
        for name, weight in parcel.host_weights().items():
            assert torch.equal(weight, parcel.origins()[name])


def test_what_cannot_be_copied_stays_in_the_mapped_file(rig: Rig, expected: Tensor) -> None:
    rig.resources.store.ledger.spendable_bytes = 0
    object.__setattr__(rig.resources.store, "memory", lambda: HostMemory(GIB, 0))
    rig.load({"transformer": "layerwise-offload"})
    is_mapped = MappedFiles()
    is_mapped.refresh()
    for parcel in rig.parcels("transformer"):
        assert parcel.blob.tier == "mapped"
        assert all(is_mapped(source.data) for source in parcel.blob.sources)
    assert torch.equal(rig.run(), expected)


def test_another_dtype_than_the_files_is_never_mapped(rig: Rig) -> None:
    rig.resources.store.ledger.spendable_bytes = 0
    object.__setattr__(rig.resources.store, "memory", lambda: HostMemory(GIB, 0))
    rig.load({"transformer": "layerwise-offload"}, dtype="bfloat16")
    tiers = {parcel.name: parcel.blob.tier for parcel in rig.parcels("transformer")}
    cast = [name for name in tiers if name.startswith("blocks.") and not _all_float32(rig, name)]
    assert cast
    islands = rig.store.module("transformer").blocks[0].scale_shift_table
    assert islands.dtype == torch.float32
    linear = next(parcel for parcel in rig.parcels("transformer") if parcel.name == "blocks.1")
    origins = linear.origins()
    assert "blocks.1.attn1.to_q.weight" not in origins
    assert "blocks.1.scale_shift_table" in origins


def _all_float32(rig: Rig, layer: str) -> bool:
    parcel = next(parcel for parcel in rig.parcels("transformer") if parcel.name == layer)
    return {tensor.dtype for tensor in parcel.host_weights().values()} == {torch.float32}


def test_a_resident_component_is_on_the_device_after_loading_and_keeps_nothing_on_the_host(
    rig: Rig, sim: World, expected: Tensor
) -> None:
    store = rig.load(everywhere("resident"))
    assert {tensor.device.type for module in store.modules().values() for tensor in module.parameters()} == {"sim"}
    assert sim.pinned.live_bytes == 0
    assert file_views(rig.folder) == set()
    assert torch.equal(rig.run(), expected)


def test_each_component_is_placed_before_the_next_is_read(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    import framework.loading.load as loading

    told: list[str] = []
    original = loading.load_part

    def read(part: Any, model: ModelSpec) -> Any:
        if part.is_module:
            told.append(f"{part.name} after {len(rig.placed.components())}")
        return original(part, model)

    monkeypatch.setattr(loading, "load_part", read)
    rig.load({"transformer": "layerwise-offload"})
    assert [line.partition(" after ")[2] for line in told] == ["0", "1", "2"]


def test_bytes_times_uses_give_the_order(rig: Rig) -> None:
    rig.load({"transformer": "layerwise-offload"}, uses={"vae": 1000})
    assert rig.placed.components()[0] == "vae"


# Capacity


def test_me01_a_streamed_model_larger_than_the_device_loads_and_runs(rig: Rig, sim: World) -> None:
    from tiny.wan import wan_transformer

    torch.manual_seed(0)
    model = wan_transformer(24)
    model.save_pretrained(rig.folder / "transformer")
    expected = call(own_weights(model), "cpu")
    file = rig.folder / "transformer" / "diffusion_pytorch_model.safetensors"
    sim.devices[0].ledger.capacity_bytes = int(0.4 * file.stat().st_size)
    rig.load({"transformer": "layerwise-offload", "text_encoder": "component-offload", "vae": "component-offload"})
    sizes = [parcel.size_bytes for parcel in rig.parcels("transformer") if parcel.name.startswith("blocks.")]
    rest = sum(parcel.size_bytes for parcel in rig.parcels("transformer")) - sum(sizes)
    assert sim.devices[0].ledger.peak_bytes <= 3 * max(sizes) + rest
    assert torch.equal(rig.run(), expected)


def test_me02_an_encoder_loads_in_its_own_dtype_and_first_on_the_host(rig: Rig, sim: World) -> None:
    part = rig.folder / "text_encoder"
    save_file({n: t.bfloat16() for n, t in load_file(part / "model.safetensors").items()}, part / "model.safetensors")
    config = (part / "config.json").read_text().replace('"dtype": "float32"', '"dtype": null')
    (part / "config.json").write_text(config)
    sim.devices[0].ledger.capacity_bytes = int(1.2 * (part / "model.safetensors").stat().st_size)
    rig.load(everywhere("component-offload"), dtype=None)
    assert sim.devices[0].ledger.peak_bytes == 0
    told = next(event for event in rig.recorder.of(ComponentLoaded) if event.component == "text_encoder")
    assert told.dtype == "bfloat16"
    strategy = rig.strategy("text_encoder")
    strategy.prepare()
    strategy.wait()
    assert sim.devices[0].ledger.live_bytes <= 1.01 * told.size_bytes + 4096
    strategy.finish_use()


# What a checkpoint may hold


@pytest.mark.parametrize("mode", MODES)
def test_a_sharded_checkpoint_gives_the_same_weights(rig: Rig, expected: Tensor, mode: str) -> None:
    from diffusers import WanTransformer3DModel

    part = rig.folder / "transformer"
    model = WanTransformer3DModel.from_pretrained(part, dtype=torch.float32)
    (part / "diffusion_pytorch_model.safetensors").unlink()
    model.save_pretrained(part, max_shard_size="40KB")
    assert len(list(part.glob("*-of-*.safetensors"))) > 1
    rig.load(everywhere(mode))
    assert torch.equal(rig.run(), expected)


@pytest.mark.parametrize("mode", ["component-offload", "layerwise-offload"])
def test_a_tie_is_stored_once(rig: Rig, mode: str) -> None:
    rig.load({"text_encoder": mode})
    encoder = rig.store.module("text_encoder")
    assert encoder.shared.weight is encoder.encoder.embed_tokens.weight
    total = sum(parcel.size_bytes for parcel in rig.parcels("text_encoder"))
    told = next(event for event in rig.recorder.of(ComponentLoaded) if event.component == "text_encoder")
    assert total <= told.size_bytes + 256 * len(list(encoder.parameters()))


# Formats that are finished on the device


class FakeQuantiser:
    """Rounds the blocks' query weights, marks them with their format, and insists on its device."""

    def __init__(self, device: str = "sim", fails: bool = False) -> None:
        self.device, self.fails = device, fails

    def __call__(self, module: nn.Module) -> None:
        for block in module.blocks:  # type: ignore[union-attr]
            linear = block.attn1.to_q
            if linear.weight.device.type != self.device:
                raise RuntimeError("this format is packed on the device only")
            if self.fails:
                raise RuntimeError("planted")
            packed = nn.Parameter((linear.weight.detach() / 2).half().float(), requires_grad=False)
            packed.quant_type = "half"  # type: ignore[attr-defined]
            linear.weight = packed


@pytest.mark.parametrize("mode", MODES)
def test_a_format_is_finished_on_the_device_and_then_placed(rig: Rig, sim: World, mode: str) -> None:
    from diffusers import WanTransformer3DModel

    rig.load(everywhere(mode), post_process={"transformer": FakeQuantiser()})
    assert sim.devices[0].ledger.peak_bytes > 0
    idle = sum(found.idle_bytes for found in rig.placed.footprints().values())
    assert idle <= sim.devices[0].ledger.live_bytes <= 1.5 * idle
    assert rig.store.module("transformer").blocks[3].attn1.to_q.weight.quant_type == "half"
    reference = WanTransformer3DModel.from_pretrained(rig.folder / "transformer", dtype=torch.float32)
    FakeQuantiser("cpu")(own_weights(reference))
    assert torch.equal(rig.run(), call(reference, "cpu"))


def test_a_format_that_does_not_fit_whole_is_refused_with_the_reason(rig: Rig, sim: World) -> None:
    sim.devices[0].ledger.capacity_bytes = 4096
    with pytest.raises(PlanError, match="component 'transformer': its format is finished on the device"):
        rig.load(everywhere("layerwise-offload"), post_process={"transformer": FakeQuantiser()})


def test_a_format_that_fails_names_its_component(rig: Rig) -> None:
    with pytest.raises(LoadError, match="component 'transformer': finishing its format on the device failed: planted"):
        rig.load(everywhere("component-offload"), post_process={"transformer": FakeQuantiser(fails=True)})
