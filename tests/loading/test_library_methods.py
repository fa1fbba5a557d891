"""bitsandbytes and quanto by contract: what the libraries are told, without their kernels."""

from pathlib import Path
from typing import Any

import pytest
import torch
from diffusers import WanTransformer3DModel
from transformers import UMT5EncoderModel

from framework.loading.components import Part, load_part
from framework.loading.quantize import library_options, quantize
from framework.quantization import METHODS, Quantization
from framework.spec import ModelSpec

LIBRARIES = (WanTransformer3DModel, UMT5EncoderModel)


@pytest.fixture(autouse=True)
def pretend_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Their configs ask for the version of a package that need not be here."""
    import importlib.metadata

    known = importlib.metadata.version
    versions = {"bitsandbytes": "0.48.0", "optimum-quanto": "0.2.7"}
    monkeypatch.setattr("importlib.metadata.version", lambda name: versions.get(name) or known(name))


def config(name: str, cls: Any, **options: Any) -> Any:
    chosen = Quantization(method=METHODS[name], **options)
    return library_options(chosen, cls, torch.bfloat16)["quantization_config"]


@pytest.mark.parametrize("cls", LIBRARIES)
def test_nf4_computes_in_the_components_dtype_unless_told(cls: Any) -> None:
    found = config("bnb-nf4", cls, skip=("proj_out",))
    assert type(found).__module__.startswith(cls.__module__.partition(".")[0])
    assert (found.load_in_4bit, found.load_in_8bit, found.bnb_4bit_quant_type) == (True, False, "nf4")
    assert found.bnb_4bit_compute_dtype == torch.bfloat16
    assert found.llm_int8_skip_modules == ["proj_out"]
    assert config("bnb-nf4", cls, compute_dtype="float16").bnb_4bit_compute_dtype == torch.float16


@pytest.mark.parametrize("cls", LIBRARIES)
def test_int8_of_bitsandbytes_and_of_quanto(cls: Any) -> None:
    assert config("bnb-int8", cls).load_in_8bit
    found = config("quanto-int8", cls, skip=("norm",))
    assert getattr(found, "weights_dtype", None) or found.weights == "int8"
    assert found.modules_to_not_convert == ["norm"]


def test_the_config_reaches_the_loader_and_nothing_is_done_twice(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    told: dict[str, Any] = {}

    def from_pretrained(folder: str, **options: Any) -> tuple[torch.nn.Module, dict[str, Any]]:
        told.update(options, folder=folder)
        return torch.nn.Linear(2, 2), {"missing_keys": []}

    monkeypatch.setattr(WanTransformer3DModel, "from_pretrained", from_pretrained)
    quantization = Quantization(method=METHODS["bnb-nf4"])
    file = tmp_path / "diffusion_pytorch_model.safetensors"
    part = Part("transformer", WanTransformer3DModel, tmp_path, (file,), "bfloat16", None, quantization)
    module = load_part(part, ModelSpec(source=str(tmp_path)))
    assert told["quantization_config"].load_in_4bit
    assert told["dtype"] == torch.bfloat16
    assert told["local_files_only"]
    assert type(module.weight) is torch.nn.Parameter


def test_methods_of_ours_tell_the_library_nothing() -> None:
    for name in ("torchao-int8", "torchao-fp8", "layerwise-casting-fp8"):
        assert library_options(Quantization(method=METHODS[name]), WanTransformer3DModel, torch.bfloat16) == {}
    assert library_options(None, WanTransformer3DModel, torch.bfloat16) == {}


def test_a_library_method_changes_nothing_after_loading() -> None:
    module = torch.nn.Sequential(torch.nn.Linear(2, 2))
    before = module[0].weight
    quantize("transformer", module, Quantization(method=METHODS["bnb-nf4"]), torch.bfloat16)
    assert module[0].weight is before
