"""From a folder to a store: what is loaded, in which order and dtype, and one line for what is missing."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import spec_builders
import torch
from safetensors.torch import load_file, save_file
from spec_builders import Recorder

from framework.errors import ConfigError, LoadError
from framework.graph import build_graph
from framework.loading.load import load_store
from framework.loading.weights import is_aligned
from framework.runtime.events import ComponentLoaded, ComponentLoading, EventBus
from framework.spec import ComponentSpec, ModelSpec, Placement, SchedulerSpec, StageSpec

Folder = Callable[[str], Path]


@pytest.fixture
def copied(tiny_folder: Folder, tmp_path: Path) -> Path:
    """A copy of the tiny Wan 2.1 folder, to be broken."""
    return Path(shutil.copytree(tiny_folder("wan21"), tmp_path / "model"))


def load(folder: Path, sink: Any = None, model: dict[str, Any] | None = None, **changes: Any) -> Any:
    options = {"source": str(folder), "dtype": "float32", **(model or {})}
    spec = spec_builders.pipeline("wan21", lambda name: folder, model=ModelSpec(**options), **changes)
    placements = {"vae": Placement(component="vae", group="vae", mode="resident")}
    return load_store(spec, build_graph(spec), placements, EventBus(*([sink] if sink else [])))


def line(folder: Path, **options: Any) -> str:
    with pytest.raises((LoadError, ConfigError)) as caught:
        load(folder, **options)
    assert caught.value.exit_code == 2
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_every_weight_is_aligned_frozen_and_in_eval_mode(loaded_stores: Callable[[str], Any]) -> None:
    for module in loaded_stores("wan22")[2].modules().values():
        assert not module.training
        for tensor in (*module.parameters(), *module.buffers()):
            assert is_aligned(tensor)
            assert not tensor.requires_grad


def test_the_encoders_tie_is_kept(loaded_stores: Callable[[str], Any]) -> None:
    encoder = loaded_stores("wan21")[2].module("text_encoder")
    assert encoder.shared.weight is encoder.encoder.embed_tokens.weight


def test_components_are_told_with_bytes_and_dtype_largest_file_first(copied: Path) -> None:
    recorder = Recorder()
    store = load(copied, recorder)
    loaded = recorder.of(ComponentLoaded)
    sizes = [sum(file.stat().st_size for file in (copied / e.component).glob("*.safetensors")) for e in loaded]
    assert sizes == sorted(sizes, reverse=True)
    assert {event.component for event in loaded} == {"text_encoder", "transformer", "vae"}
    vae = next(event for event in loaded if event.component == "vae")
    assert (vae.mode, vae.dtype) == ("resident", "float32")
    tensors = (*store.module("vae").parameters(), *store.module("vae").buffers())
    assert vae.size_bytes == sum(tensor.nbytes for tensor in tensors)


def test_the_components_dtype_beats_the_models_and_islands_stay_in_float32(copied: Path) -> None:
    parts = {name: ComponentSpec(name=name) for name in ("text_encoder", "transformer")}
    parts["vae"] = ComponentSpec(name="vae", dtype="float32")
    store = load(copied, model={"dtype": "bfloat16"}, components=parts)
    assert store.module("vae").dtype == torch.float32
    transformer = store.module("transformer")
    assert transformer.blocks[0].attn1.to_q.weight.dtype == torch.bfloat16
    assert transformer.blocks[0].scale_shift_table.dtype == torch.float32  # diffusers keeps it so


def test_without_a_dtype_the_checkpoints_own_is_used(copied: Path) -> None:
    file = copied / "vae" / "diffusion_pytorch_model.safetensors"
    save_file({name: tensor.half() for name, tensor in load_file(file).items()}, file)
    store = load(copied, model={"dtype": None})
    assert store.module("vae").dtype == torch.float16
    assert store.module("text_encoder").dtype == torch.float32


def test_an_unknown_dtype_is_named(copied: Path) -> None:
    assert "unknown dtype 'float12'" in line(copied, model={"dtype": "float12"})


def test_a_missing_component_folder_names_component_and_folder(copied: Path) -> None:
    shutil.rmtree(copied / "text_encoder")
    assert line(copied) == f"component 'text_encoder': the folder '{copied / 'text_encoder'}' does not exist"


def test_nothing_is_read_when_something_is_missing(copied: Path) -> None:
    recorder = Recorder()
    shutil.rmtree(copied / "vae")
    with pytest.raises(LoadError):
        load(copied, recorder)
    assert recorder.events == []


def test_a_tokenizer_that_cannot_be_had_is_known_before_a_weight_is_read(copied: Path) -> None:
    (copied / "tokenizer" / "tokenizer.json").write_text("{")
    recorder = Recorder()
    assert "component 'tokenizer': cannot be loaded" in line(copied, sink=recorder)
    assert recorder.of(ComponentLoading) == []


def test_a_config_that_is_no_object_is_named_and_never_looked_for_on_the_hub(copied: Path) -> None:
    config = copied / "scheduler" / "scheduler_config.json"
    config.write_text("[]")
    assert line(copied) == f"{config}: expected a JSON object"


def test_a_component_the_checkpoint_leaves_out_is_named(copied: Path) -> None:
    index = json.loads((copied / "model_index.json").read_text())
    index["transformer"] = [None, None]
    (copied / "model_index.json").write_text(json.dumps(index))
    assert line(copied) == f"{copied}: the checkpoint has no component 'transformer'"


def test_another_familys_folder_is_refused(copied: Path) -> None:
    index = json.loads((copied / "model_index.json").read_text())
    index["_class_name"] = "LTXPipeline"
    (copied / "model_index.json").write_text(json.dumps(index))
    assert "holds a LTXPipeline, which family 'wan' does not run (WanPipeline)" in line(copied)


def test_only_what_the_graph_uses_is_loaded_and_the_vae_keeps_its_config(copied: Path) -> None:
    shutil.rmtree(copied / "text_encoder")
    shutil.rmtree(copied / "tokenizer")
    (copied / "vae" / "diffusion_pytorch_model.safetensors").unlink()

    denoise = StageSpec(name="denoise", kind="denoise", inputs={"prompt_embeds": "latents_in"})
    source = StageSpec(name="source", kind="text_encode", component_uses=(), outputs={"prompt_embeds": "latents_in"})
    store = load(copied, stages={"source": source, "denoise": denoise})
    assert sorted(store.managed) == ["transformer"]
    assert store.components["text_encoder"] is None
    assert store.pipeline_view().vae_scale_factor_spatial == 8
    assert next(store.components["vae"].parameters()).device.type == "meta"


def test_scheduler_overrides_reach_the_view(copied: Path) -> None:
    store = load(copied, scheduler=SchedulerSpec(flow_shift=9.0))
    assert store.pipeline_view().scheduler.config.flow_shift == 9.0


def test_a_component_may_come_from_another_folder(copied: Path, tiny_folder: Folder) -> None:
    shutil.rmtree(copied / "vae")
    parts = {name: ComponentSpec(name=name) for name in ("text_encoder", "transformer")}
    for source in (tiny_folder("wan22"), tiny_folder("wan22") / "vae"):
        parts["vae"] = ComponentSpec(name="vae", source=str(source))
        assert load(copied, components=parts).module("vae").dtype == torch.float32


def test_a_missing_component_source_is_named(copied: Path) -> None:
    parts = {name: ComponentSpec(name=name) for name in ("text_encoder", "transformer")}
    parts["vae"] = ComponentSpec(name="vae", source="./gone")
    assert line(copied, components=parts) == "pipeline.components.vae.source: the folder 'gone' does not exist"


# Pickles (SE-03); of adapters see tests/broken/lora_as_pickle.yaml


def as_pickle(folder: Path, payload: Any = None) -> None:
    """Put a pickle beside the VAE's safetensors; `payload` replaces the weights."""
    file = folder / "vae" / "diffusion_pytorch_model.safetensors"
    torch.save(payload or load_file(file), file.with_suffix(".bin"))


class Marker:
    """A pickle that leaves a mark when it is opened carelessly."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[Any, ...]:
        return Path.touch, (self.path,)


def test_safetensors_come_first_whatever_lies_beside_them(copied: Path, tmp_path: Path) -> None:
    as_pickle(copied, Marker(tmp_path / "marker"))
    load(copied, model={"allow_pickle": True})
    assert not (tmp_path / "marker").exists()


def test_a_pickle_is_refused_with_the_way_to_convert_it(copied: Path) -> None:
    as_pickle(copied)
    (copied / "vae" / "diffusion_pytorch_model.safetensors").unlink()
    message = line(copied)
    assert "diffusion_pytorch_model.bin' is a pickle, which is not read; convert it to safetensors" in message
    assert "pipeline.model.allow_pickle=true" in message


def test_an_allowed_pickle_gives_the_same_weights(copied: Path) -> None:
    expected = load(copied).module("vae").state_dict()
    as_pickle(copied)
    (copied / "vae" / "diffusion_pytorch_model.safetensors").unlink()
    loaded = load(copied, model={"allow_pickle": True}).module("vae").state_dict()
    assert all(torch.equal(tensor, expected[name]) for name, tensor in loaded.items())


def test_even_an_allowed_pickle_runs_no_code(copied: Path, tmp_path: Path) -> None:
    as_pickle(copied, Marker(tmp_path / "marker"))
    (copied / "vae" / "diffusion_pytorch_model.safetensors").unlink()
    assert "component 'vae': cannot be loaded" in line(copied, model={"allow_pickle": True})
    assert not (tmp_path / "marker").exists()


def test_weights_of_a_variant_only_are_pointed_to(copied: Path) -> None:
    file = copied / "vae" / "diffusion_pytorch_model.safetensors"
    file.rename(copied / "vae" / "diffusion_pytorch_model.fp16.safetensors")
    assert "choose it with pipeline.model.variant" in line(copied)
    assert load(copied, model={"variant": "fp16"}).module("vae").dtype == torch.float32


def test_a_variant_nobody_has_is_refused(copied: Path) -> None:
    assert line(copied, model={"variant": "fp8"}) == (
        "pipeline.model.variant: no component has weights of variant 'fp8'"
    )


@pytest.mark.parametrize(
    ("component", "file", "weight"),
    [
        ("text_encoder", "model.safetensors", "encoder.block.0.layer.0.SelfAttention.q.weight"),
        ("transformer", "diffusion_pytorch_model.safetensors", "blocks.0.attn1.to_k.weight"),
    ],
)
def test_a_weight_that_the_files_lack_is_named_and_never_made_up(
    copied: Path, component: str, file: str, weight: str
) -> None:
    path = copied / component / file
    weights = load_file(path)
    del weights[weight]
    save_file(weights, path, metadata={"format": "pt"})
    said = line(copied)
    assert said.startswith(f"component '{component}': the files in '{copied / component}' lack the weight '{weight}'")
