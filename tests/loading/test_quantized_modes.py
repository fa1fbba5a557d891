"""Weights in fewer bits on `sim`: every method gives the same bytes in every mode that the table allows."""

import importlib.util
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import spec_builders
import torch
from gguf_builders import write_gguf
from spec_builders import request
from torch import Tensor, nn

from framework.errors import ConfigError, LoadError
from framework.graph import build_graph
from framework.loading.load import load_store
from framework.loading.weights import is_quantised, own_weights, size_bytes, stored_bytes
from framework.memory.resources import make_resources
from framework.planning.inventory import inventory
from framework.platforms.sim.testing import sim as sim
from framework.platforms.sim.world import World
from framework.quantization import METHODS, Quantization
from framework.registry import MODES
from framework.runtime.events import EventBus
from framework.runtime.placed import Placed
from framework.spec import ComponentSpec, Knob, ModelSpec, Placement

Folder = Callable[[str], Path]
ON_SIM = [name for name, method in METHODS.items() if "sim" in method.devices]
LIKE_ANOTHER = ("torchao-fp8",)  # one library with torchao-int8


def needs(name: str) -> None:
    """Skip where the method's package is not installed; the table's own tests say what a user is told."""
    for package in METHODS[name].packages:
        if importlib.util.find_spec(package) is None:
            pytest.skip(f"needs the package {package}")


class Rig:
    """The tiny Wan 2.1, its transformer stored by one method, in one mode."""

    def __init__(self, folder: Path, method: str, mode: str, device: str, file: Path | None, **options: Any) -> None:
        knobs = {"prefetch": Knob("1"), "resident": Knob("1")} if mode == "layerwise-offload" else {}
        placements = {"transformer": Placement(component="transformer", group="dit", mode=mode, **knobs)}
        parts = {name: ComponentSpec(name=name, group=spec_builders.GROUPS[name]) for name in ("text_encoder", "vae")}
        source = str(file) if file is not None else None
        parts["transformer"] = ComponentSpec(name="transformer", group="dit", source=source)
        stages = spec_builders.standard_stages(two_experts=False)
        self.spec = spec_builders.pipeline(
            "wan21",
            lambda _: folder,
            model=ModelSpec(source=str(folder), dtype=options.pop("dtype", "bfloat16")),
            components=parts,
            stages={name: stages[name] for name in ("encode_prompt", "denoise")},
        )
        self.graph = build_graph(self.spec)
        where = torch.device(device)
        self.placed = Placed(placements, make_resources(where))
        quantized = {"transformer": Quantization(method=METHODS[method], **options)}
        self.store = load_store(
            self.spec, self.graph, placements, EventBus(), where, place=self.placed.strategy, quantized=quantized
        )

    def run(self) -> Tensor:
        loaded = self.spec, self.graph, self.store
        wanted = request(num_frames=1, num_inference_steps=1, guidance_scale=1.0)
        result, _ = spec_builders.run(loaded, wanted, placed=self.placed, keep=("latents",))
        latents: Tensor = result.requests[0].values["latents"].data.cpu()
        return latents

    @property
    def transformer(self) -> nn.Module:
        return self.store.module("transformer")

    def close(self) -> None:
        self.placed.close()
        vars(self).clear()


@pytest.fixture
def make(tiny_folder: Folder, tmp_path: Path, sim: World) -> Iterator[Callable[..., Rig]]:
    made: list[Rig] = []
    folder = tiny_folder("wan21")

    def build(method: str, mode: str = "resident", device: str = "sim:0", **options: Any) -> Rig:
        needs(method)
        file = tmp_path / "transformer.gguf" if method == "gguf" else None
        if file is not None and not file.exists():
            write_gguf(folder / "transformer", file)
        made.append(Rig(folder, method, mode, device, file, **options))
        return made[-1]

    yield build
    for rig in made:
        rig.close()


@pytest.mark.parametrize(
    "method", [pytest.param(name, marks=pytest.mark.slow) if name in LIKE_ANOTHER else name for name in ON_SIM]
)
def test_every_mode_gives_the_bytes_of_the_cpu(make: Callable[..., Rig], method: str) -> None:
    expected = make(method, device="cpu").run()
    assert torch.isfinite(expected).all()
    for mode in MODES:
        rig = make(method, mode)
        assert torch.equal(rig.run(), expected), mode
        assert torch.equal(rig.run(), expected), f"{mode}, again"


@pytest.mark.parametrize("method", ON_SIM)
def test_a_layers_weight_is_stored_in_fewer_bits(make: Callable[..., Rig], method: str, tiny_folder: Folder) -> None:
    weight = make(method, device="cpu").transformer.get_submodule("blocks.0.ffn.net.2").weight
    assert is_quantised(weight)
    assert stored_bytes(weight) < 24 * 32 * 2  # bfloat16


def test_the_weights_on_the_device_are_counted_as_they_are_stored(make: Callable[..., Rig]) -> None:
    full = sum(weight.numel() * 2 for weight in make("torchao-int8", device="cpu").transformer.parameters())
    assert size_bytes(make("torchao-int8").transformer) < full


def inputs() -> dict[str, Tensor]:
    generator = torch.Generator().manual_seed(0)
    return {
        "hidden_states": torch.randn(1, 16, 1, 4, 4, generator=generator).bfloat16(),
        "timestep": torch.tensor([500]),
        "encoder_hidden_states": torch.randn(1, 8, 32, generator=generator).bfloat16(),
    }


def call(transformer: nn.Module) -> Tensor:
    with torch.inference_mode():
        found: Tensor = transformer(**inputs(), return_dict=False)[0]
    return found


def test_layerwise_casting_is_what_diffusers_computes(make: Callable[..., Rig], tiny_folder: Folder) -> None:
    from diffusers import WanTransformer3DModel

    plain = WanTransformer3DModel.from_pretrained(tiny_folder("wan21") / "transformer", dtype=torch.bfloat16)
    plain.enable_layerwise_casting(storage_dtype=torch.float8_e4m3fn, compute_dtype=torch.bfloat16)
    ours = make("layerwise-casting-fp8", device="cpu").transformer
    assert {name: weight.dtype for name, weight in ours.named_parameters()} == {
        name: weight.dtype for name, weight in plain.named_parameters()
    }
    assert ours.dtype == torch.bfloat16
    assert torch.equal(call(ours), call(own_weights(plain)))


def test_a_cast_layer_gets_its_stored_weights_back_after_an_error(make: Callable[..., Rig]) -> None:
    layer = make("layerwise-casting-fp8", device="cpu").transformer.get_submodule("blocks.0.ffn.net.2")
    before = layer.weight
    with pytest.raises(RuntimeError):
        layer(torch.zeros(1, 7, dtype=torch.bfloat16))
    assert layer.weight is before


def test_layerwise_casting_is_refused_for_models_of_transformers(tiny_folder: Folder) -> None:
    spec = spec_builders.pipeline("wan21", tiny_folder)
    quantized = {"text_encoder": Quantization(method=METHODS["layerwise-casting-fp8"], key="numerics.quantize.x")}
    with pytest.raises(ConfigError, match=r"numerics\.quantize\.x: .*no model of diffusers.*torchao-fp8 works"):
        load_store(spec, build_graph(spec), {}, EventBus(), quantized=quantized)


def test_gguf_is_what_diffusers_computes(make: Callable[..., Rig], tiny_folder: Folder, tmp_path: Path) -> None:
    from diffusers import GGUFQuantizationConfig, WanTransformer3DModel

    ours = make("gguf", device="cpu").transformer
    plain = WanTransformer3DModel.from_single_file(
        str(tmp_path / "transformer.gguf"),
        config=str(tiny_folder("wan21") / "transformer"),
        quantization_config=GGUFQuantizationConfig(compute_dtype=torch.bfloat16),
        dtype=torch.bfloat16,
    )
    assert type(ours.get_submodule("blocks.0.ffn.net.2")).__name__ == "GGUFLinear"
    assert torch.equal(call(ours), call(plain.eval()))


def test_layers_that_are_skipped_stay_as_they_are(make: Callable[..., Rig]) -> None:
    transformer = make("torchao-int8", device="cpu", skip=("ffn",)).transformer
    assert type(transformer.get_submodule("blocks.0.ffn.net.2").weight) is nn.Parameter
    assert type(transformer.get_submodule("blocks.0.attn1.to_q").weight) is not nn.Parameter


def test_a_method_without_a_layer_to_change_is_refused(make: Callable[..., Rig]) -> None:
    with pytest.raises(LoadError, match="has no layer that torchao-int8 takes"):
        make("torchao-int8", device="cpu", skip=("",))


def test_an_adapter_is_refused_on_quantised_weights(make: Callable[..., Rig], tmp_path: Path) -> None:
    from safetensors.torch import save_file

    from framework.runtime.weight_edits import WeightEdits
    from framework.spec import LoraSpec

    name = "transformer.blocks.0.ffn.net.2"
    file = tmp_path / "style.safetensors"
    halves = {f"{name}.lora_A.weight": torch.ones(1, 32), f"{name}.lora_B.weight": torch.ones(24, 1)}
    save_file(halves, file)
    for method in set(ON_SIM) - set(LIKE_ANOTHER):
        rig = make(method)
        with pytest.raises(LoadError, match="is quantised; nothing can be merged"):
            WeightEdits(rig.store, rig.placed).apply([LoraSpec(file)])


@pytest.mark.parametrize("method", ON_SIM)
def test_the_planner_counts_weights_as_they_are_stored(make: Callable[..., Rig], method: str) -> None:
    rig = make(method)
    quantized = {"transformer": Quantization(method=METHODS[method])}
    counted = inventory(rig.spec, frozenset({"transformer"}), connect=False, quantized=quantized)["transformer"]
    assert counted.size_bytes == size_bytes(rig.transformer)
    assert sum(len(stack.layers) for stack in counted.stacks) == len(rig.transformer.blocks)
