"""A component from one file beside a base model, from another folder or from the hub, and what is left out (LI-02)."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import spec_builders
import torch
from gguf_builders import write_gguf
from safetensors.torch import load_file, save_file
from torch import Tensor

from framework.errors import ConfigError, LoadError
from framework.graph import build_graph
from framework.loading.load import load_store
from framework.quantization import METHODS, Quantization
from framework.runtime.events import EventBus
from framework.spec import ComponentSpec, ComponentUse, ModelSpec, StageSpec

Folder = Callable[[str], Path]
WEIGHTS = "diffusion_pytorch_model.safetensors"
ORIGINAL_NAMES = {  # diffusers' -> those of Wan's own files
    "condition_embedder.time_embedder.linear_1": "time_embedding.0",
    "condition_embedder.time_embedder.linear_2": "time_embedding.2",
    "condition_embedder.text_embedder.linear_1": "text_embedding.0",
    "condition_embedder.text_embedder.linear_2": "text_embedding.2",
    "condition_embedder.time_proj": "time_projection.1",
    "attn1": "self_attn",
    "attn2": "cross_attn",
    ".to_out.0.": ".o.",
    ".to_q.": ".q.",
    ".to_k.": ".k.",
    ".to_v.": ".v.",
    "proj_out": "head.head",
    "ffn.net.0.proj": "ffn.0",
    "ffn.net.2": "ffn.2",
    "norm2": "norm-other",
    "norm3": "norm2",
    "norm-other": "norm3",
}


def original_name(name: str) -> str:
    if name == "scale_shift_table":
        return "head.modulation"
    for ours, theirs in ORIGINAL_NAMES.items():
        name = name.replace(ours, theirs)
    return name.replace("scale_shift_table", "modulation")


@pytest.fixture
def base(tiny_folder: Folder) -> Path:
    return tiny_folder("wan21")


@pytest.fixture
def weights(base: Path) -> dict[str, Tensor]:
    return load_file(base / "transformer" / WEIGHTS)


def load(folder: Path, source: str | Path | None, dtype: str | None = "float32", **changes: Any) -> Any:
    parts = {name: ComponentSpec(name=name) for name in ("text_encoder", "vae")}
    parts["transformer"] = ComponentSpec(name="transformer", source=None if source is None else str(source))
    quantized = changes.pop("quantized", {})
    fields = {"model": ModelSpec(source=str(folder), dtype=dtype), "components": parts, **changes}
    spec = spec_builders.pipeline("wan21", lambda _: folder, **fields)
    return load_store(spec, build_graph(spec), {}, EventBus(), quantized=quantized)


def line(folder: Path, source: str | Path | None, **options: Any) -> str:
    with pytest.raises((LoadError, ConfigError)) as caught:
        load(folder, source, **options)
    assert caught.value.exit_code == 2
    assert "\n" not in str(caught.value)
    return str(caught.value)


def loaded_weights(store: Any) -> dict[str, Tensor]:
    return dict(store.module("transformer").state_dict())


def assert_same(found: dict[str, Tensor], expected: dict[str, Tensor]) -> None:
    assert set(found) == set(expected)
    assert all(torch.equal(found[name], tensor) for name, tensor in expected.items())


@pytest.mark.parametrize("prefix", [None, "", "model.diffusion_model."])
def test_a_safetensors_file_takes_the_place_of_the_models_own_weights(
    base: Path, weights: dict[str, Tensor], tmp_path: Path, prefix: str | None
) -> None:
    changed = {name: tensor + 1 for name, tensor in weights.items()}
    names = {name: name if prefix is None else prefix + original_name(name) for name in changed}
    save_file({names[name]: tensor for name, tensor in changed.items()}, tmp_path / "finetune.safetensors")
    assert_same(loaded_weights(load(base, tmp_path / "finetune.safetensors")), changed)


def test_a_file_in_float8_comes_in_the_dtype_of_the_run(base: Path, weights: dict[str, Tensor], tmp_path: Path) -> None:
    small = {name: tensor.to(torch.float8_e4m3fn) for name, tensor in weights.items()}
    save_file(small, tmp_path / "small.safetensors")
    name = "blocks.0.ffn.net.2.weight"
    found = loaded_weights(load(base, tmp_path / "small.safetensors", dtype="bfloat16"))[name]
    assert torch.equal(found, small[name].bfloat16())
    assert torch.equal(loaded_weights(load(base, tmp_path / "small.safetensors", dtype=None))[name], found)


def test_a_text_encoder_may_be_a_file_too(base: Path, tmp_path: Path) -> None:
    weights = load_file(base / "text_encoder" / "model.safetensors")
    save_file({name: tensor + 1 for name, tensor in weights.items()}, tmp_path / "t5.safetensors")
    parts = {name: ComponentSpec(name=name) for name in ("transformer", "vae")}
    parts["text_encoder"] = ComponentSpec(name="text_encoder", source=str(tmp_path / "t5.safetensors"))
    encoder = load(base, None, components=parts).module("text_encoder")
    assert torch.equal(encoder.shared.weight, weights["shared.weight"] + 1)
    assert encoder.shared.weight is encoder.encoder.embed_tokens.weight


def test_a_file_that_is_cut_short_or_another_models_is_named(
    base: Path, weights: dict[str, Tensor], tmp_path: Path
) -> None:
    file = tmp_path / "file.safetensors"
    save_file({name: tensor for name, tensor in weights.items() if name != "blocks.5.ffn.net.2.weight"}, file)
    assert f"'{file}' lacks the weight 'blocks.5.ffn.net.2.weight'" in line(base, file)
    save_file({"scaled_fp8": torch.zeros(1), **weights}, file)
    assert "keeps scaled 8-bit weights ('scaled_fp8')" in line(base, file)
    save_file({"unet.something": torch.zeros(1)}, file)
    assert "component 'transformer'" in line(base, file)
    file.write_bytes(b"<html>not found</html>")
    assert "not a safetensors file" in line(base, file)


def test_what_is_no_weight_file_is_refused(base: Path, tmp_path: Path) -> None:
    (tmp_path / "model.ckpt").touch()
    assert "is no .safetensors or .gguf file; convert it to safetensors" in line(base, tmp_path / "model.ckpt")
    assert "the file 'gone.gguf' does not exist" in line(base, "gone.gguf")
    (tmp_path / "empty").mkdir()
    assert "holds neither a config.json nor a folder 'transformer'" in line(base, tmp_path / "empty")


def test_a_gguf_file_says_how_it_is_stored_and_nothing_else_does(base: Path, tmp_path: Path) -> None:
    pytest.importorskip("gguf")
    file = write_gguf(base / "transformer", tmp_path / "expert.gguf")
    assert "numerics.quantize.transformer: a GGUF file is its own method" in line(base, file)
    wrong = {"transformer": Quantization(method=METHODS["gguf"], key="numerics.quantize.transformer")}
    assert "gguf needs a .gguf file" in line(base, None, quantized=wrong)


def test_weights_that_were_quantised_before_are_refused_by_name(base: Path, tmp_path: Path) -> None:
    folder = Path(shutil.copytree(base / "transformer", tmp_path / "transformer"))
    config = json.loads((folder / "config.json").read_text())
    config["quantization_config"] = {"quant_method": "bitsandbytes", "load_in_4bit": True}
    (folder / "config.json").write_text(json.dumps(config))
    assert "are quantised already (bitsandbytes), which is not read" in line(base, folder)


# The hub's cache


@pytest.fixture
def cached(base: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A snapshot of `me/other` in the hub's cache."""
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path / "cache"))
    snapshot = tmp_path / "cache" / "models--me--other" / "snapshots" / "c0ffee"
    snapshot.mkdir(parents=True)
    (snapshot.parents[1] / "refs").mkdir()
    (snapshot.parents[1] / "refs" / "main").write_text("c0ffee")
    return snapshot


def test_a_component_comes_from_a_folder_the_root_or_a_file_of_another_repository(
    base: Path, weights: dict[str, Tensor], cached: Path
) -> None:
    shutil.copytree(base / "transformer", cached / "fine" / "tuned")
    shutil.copy(base / "transformer" / WEIGHTS, cached / "one.safetensors")
    assert_same(loaded_weights(load(base, "me/other/fine/tuned")), weights)
    assert_same(loaded_weights(load(base, "me/other@c0ffee/one.safetensors")), weights)
    shutil.copytree(base / "transformer", cached, dirs_exist_ok=True)
    assert_same(loaded_weights(load(base, "me/other")), weights)
    shutil.copy(base / "model_index.json", cached)
    shutil.copytree(base / "transformer", cached / "transformer")
    (cached / WEIGHTS).unlink()
    assert_same(loaded_weights(load(base, "me/other")), weights)


def test_what_the_cache_lacks_says_how_to_get_it(base: Path, cached: Path) -> None:
    for source in ("me/other@v9", "me/gone", "me/other/x.gguf"):
        message = line(base, source)
        assert f"pipeline.components.transformer.source: '{source}' is not on this machine" in message
        assert "framework download" in message


# What is left out


def test_a_component_that_is_null_or_absent_is_fine_where_the_graph_does_not_use_it(
    tiny_folder: Folder, tmp_path: Path
) -> None:
    folder = Path(shutil.copytree(tiny_folder("wan22"), tmp_path / "model"))
    one_expert = {
        **spec_builders.standard_stages(two_experts=False),
        "denoise": StageSpec(
            name="denoise",
            kind="denoise",
            component_uses=(ComponentUse(component="transformer", start_at_stage_entry=False),),
        ),
    }
    index = json.loads((folder / "model_index.json").read_text())
    shutil.rmtree(folder / "transformer_2")
    for left_out in ([None, None], None):
        index.pop("transformer_2")
        if left_out is not None:
            index["transformer_2"] = left_out
        (folder / "model_index.json").write_text(json.dumps({**index, "boundary_ratio": None}))
        store = load(folder, None, stages=one_expert)
        assert sorted(store.managed) == ["text_encoder", "transformer", "vae"]
        assert store.pipeline_view().transformer_2 is None
        index.setdefault("transformer_2", None)


def test_an_unused_expert_is_not_read_although_it_is_there(tiny_folder: Folder, tmp_path: Path) -> None:
    folder = Path(shutil.copytree(tiny_folder("wan22"), tmp_path / "model"))
    (folder / "transformer_2" / WEIGHTS).write_bytes(b"nobody reads this")
    one_expert = StageSpec(name="denoise", kind="denoise", component_uses=(ComponentUse(component="transformer"),))
    store = load(folder, None, stages={**spec_builders.standard_stages(two_experts=False), "denoise": one_expert})
    assert "transformer_2" not in store.managed


def test_a_used_component_that_is_left_out_is_named_unless_it_is_optional(base: Path, tmp_path: Path) -> None:
    folder = Path(shutil.copytree(base, tmp_path / "model"))
    index = json.loads((folder / "model_index.json").read_text())
    index["text_encoder"] = [None, None]
    (folder / "model_index.json").write_text(json.dumps(index))
    assert "the checkpoint has no component 'text_encoder'" in line(folder, None)
    parts = {name: ComponentSpec(name=name) for name in ("transformer", "vae")}
    parts["text_encoder"] = ComponentSpec(name="text_encoder", optional=True)
    assert load(folder, None, components=parts).components["text_encoder"] is None


# Adapters


def test_an_adapter_is_read_from_the_hubs_cache(cached: Path) -> None:
    from framework.loading.adapters import read_adapter

    halves = {"transformer.a.lora_A.weight": torch.ones(1, 2), "transformer.a.lora_B.weight": torch.ones(2, 1)}
    save_file(halves, cached / "style.safetensors")
    for source in ("me/other", "me/other@c0ffee", "me/other/style.safetensors"):
        assert set(read_adapter(Path(source), ["transformer"]).deltas["transformer"]) == {"a"}
    with pytest.raises(LoadError, match="'me/gone' is not on this machine; get it with `framework download`"):
        read_adapter(Path("me/gone"), ["transformer"])
    save_file(halves, cached / "other.safetensors")
    with pytest.raises(LoadError, match=r"has other\.safetensors, style\.safetensors; name it"):
        read_adapter(Path("me/other"), ["transformer"])
