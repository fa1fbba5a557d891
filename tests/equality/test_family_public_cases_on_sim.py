"""Bug reports of other systems on several families in every mode: OC-02, OC-10, OC-12, ME-02, LI-07, CF-08."""

import functools
import importlib.util
import json
import shutil
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import equality_rig
import pytest
import torch
from equality_cases import Plan
from equality_rig import Rig, Subject, placements, same
from family_builders import CASES
from image_builders import family_pipeline, family_request
from torch import Tensor, nn

from framework.errors import ConfigError
from framework.graph import build_graph
from framework.memory.layers import find_stacks
from framework.quantization import METHODS, Quantization
from framework.spec import ModelSpec

pytestmark = pytest.mark.equality

Folder = Callable[[str], Path]
MODES = (pytest.param("component-offload", marks=pytest.mark.slow), "layerwise-offload")


def subject_of(name: str, folder: Path, dtype: str = "float32") -> Subject:
    spec = family_pipeline(CASES[name], lambda _: folder)
    spec = replace(spec, model=ModelSpec(source=spec.model.source, dtype=dtype))
    return Subject(spec, build_graph(spec), (family_request(CASES[name], "", num_inference_steps=1),))


def dtypes(rig: Rig) -> dict[str, torch.dtype]:
    modules = rig.loaded().modules().items()
    return {f"{part}.{name}": p.dtype for part, module in modules for name, p in module.named_parameters()}


class EverySecond(nn.ModuleList):
    """A block list that leaves its middle out in every second pass, as caches of steps do."""

    def __iter__(self) -> Iterator[nn.Module]:
        self.passes = getattr(self, "passes", 0) + 1
        blocks = list(super().__iter__())
        return iter(blocks if self.passes % 2 else [blocks[0], blocks[-1]])


def skipping(subject: Subject, plan: Plan) -> list[Tensor]:
    rig = Rig(subject, plan)
    try:
        rig.loaded().module("transformer").transformer_blocks.__class__ = EverySecond
        return rig.run().frames
    finally:
        rig.close()


@pytest.mark.parametrize("name", ["sd3", pytest.param("sana", marks=pytest.mark.slow)])
def test_oc02_blocks_that_are_left_out_in_some_steps(name: str, tiny_folder: Folder) -> None:
    subject = subject_of(name, tiny_folder(CASES[name].tiny))
    subject = replace(subject, requests=(replace(subject.requests[0], num_inference_steps=3),))
    expected = skipping(subject, Plan("resident"))
    assert same(skipping(subject, Plan("layerwise-offload", prefetch="2")), expected)


@pytest.mark.skipif(importlib.util.find_spec("gguf") is None, reason="needs the package gguf")
@pytest.mark.parametrize("mode", MODES)
def test_oc10_weights_that_carry_their_format_keep_it_in_every_mode(
    mode: str, tiny_folder: Folder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from gguf_builders import write_gguf

    folder = tiny_folder("flux")
    file = write_gguf(folder / "transformer", tmp_path / "transformer.gguf")
    subject = subject_of("flux", folder)
    part = replace(subject.spec.components["transformer"], source=str(file))
    spec = replace(subject.spec, components={**subject.spec.components, "transformer": part})
    gguf = {"transformer": Quantization(method=METHODS["gguf"])}
    monkeypatch.setattr(equality_rig, "load_store", functools.partial(equality_rig.load_store, quantized=gguf))
    frames = []
    for plan, times in ((Plan("resident"), 1), (Plan(mode), 2)):
        rig = Rig(replace(subject, spec=spec, requests=subject.requests * times), plan)
        before = formats(rig)
        assert before
        frames += rig.run().frames
        assert formats(rig) == before
        rig.close()
    assert same(frames, [frames[0]] * 3)


def formats(rig: Rig) -> dict[str, tuple[str, Any]]:
    parameters = rig.loaded().module("transformer").named_parameters()
    return {name: (type(p).__name__, p.quant_type) for name, p in parameters if hasattr(p, "quant_type")}


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("name", ["flux", pytest.param("sd3", marks=pytest.mark.slow)])
def test_oc12_weights_that_t5_keeps_in_float32_stay_so(name: str, mode: str, tiny_folder: Folder) -> None:
    encoder = {"flux": "text_encoder_2", "sd3": "text_encoder_3"}[name]
    subject, frames = subject_of(name, tiny_folder(CASES[name].tiny), "float16"), []
    for plan, times in ((Plan("resident"), 1), (Plan(mode), 2)):
        rig = Rig(replace(subject, requests=subject.requests * times), plan)
        before = dtypes(rig)
        islands = {key for key, dtype in before.items() if key.startswith(encoder) and dtype == torch.float32}
        assert islands
        assert all(".wo." in key for key in islands)
        frames += rig.run().frames
        assert dtypes(rig) == before
        rig.close()
    assert same(frames, [frames[0]] * 3)


def test_me02_an_encoder_whose_config_names_no_dtype_is_loaded_in_the_configured_one_and_not_on_the_device(
    tiny_folder: Folder, tmp_path: Path
) -> None:
    folder = Path(shutil.copytree(tiny_folder("sdxl"), tmp_path / "sdxl"))
    for encoder in ("text_encoder", "text_encoder_2"):
        file = folder / encoder / "config.json"
        config = json.loads(file.read_text())
        file.write_text(json.dumps({**config, "dtype": None, "torch_dtype": None}))
    rig = Rig(subject_of("sdxl", folder, "bfloat16"), Plan("component-offload"))
    assert {dtype for key, dtype in dtypes(rig).items() if key.startswith("text_encoder")} == {torch.bfloat16}
    used = {name: size.used_bytes for name, size in rig.placed.footprints().items()}
    for encoder in ("text_encoder", "text_encoder_2"):
        module = rig.loaded().module(encoder)
        stored = sum(p.numel() * 2 for p in module.parameters())
        assert stored <= used[encoder] <= 1.2 * stored
        del module
    assert rig.world.devices[0].ledger.peak_bytes < min(used.values())
    rig.close()


@pytest.mark.parametrize("mode", MODES)
def test_li07_a_vae_that_is_there_already_places_nothing_else(mode: str, tiny_folder: Folder) -> None:
    subject = subject_of("sdxl", tiny_folder("sdxl"))
    rig = Rig(subject, Plan("resident"))
    expected = rig.make(subject.requests[0])
    rig.placed.forget("unet")
    rig.placed._placements = placements(subject.spec, Plan(mode))
    assert same(rig.make(subject.requests[0]), expected)
    assert rig.placed.mode("unet") == mode
    rig.close()


def test_cf08_layers_that_stand_alone_are_no_obstacle_and_a_component_without_any_is_refused(
    tiny_folder: Folder,
) -> None:
    """A KL VAE has two convolutions outside its blocks; its every mode is in `test_image_family_equality`."""
    rig = Rig(subject_of("sdxl", tiny_folder("sdxl")), Plan("resident"))
    vae = rig.loaded().module("vae")
    paths = [stack.path for stack in find_stacks("vae", vae)]
    assert paths == ["encoder.down_blocks", "encoder.mid_block", "decoder.mid_block", "decoder.up_blocks"]
    assert not any(name.startswith(tuple(paths)) for name, _ in vae.named_parameters() if "quant_conv" in name)
    with pytest.raises(ConfigError, match="component-offload and resident work"):
        find_stacks("vae", vae.quant_conv)
    del vae
    rig.close()
