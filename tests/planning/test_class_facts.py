"""The rules for classes against the real classes: ties, buffers, float32 islands, and the table of what is kept."""

import importlib
import re
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch

from framework.memory.layer_table import known_classes
from framework.paths import EMBEDDED_MODELS
from framework.planning.class_facts import class_facts
from framework.planning.sheets import Part, read_sheet


def parts() -> dict[str, Part]:
    """Every class of the sheets once for each config that counts here."""
    found = {}
    for path in sorted(EMBEDDED_MODELS.glob("*.json")):
        for part in read_sheet(path).parts.values():
            if part.tensors:
                found[f"{part.class_name[1]} {part.config.get('tie_word_embeddings', '')}".strip()] = part
    return found


PARTS = parts()


@cache
def build(shown: str) -> Any:
    """The module of one of `PARTS` on the meta device."""
    part = PARTS[shown]
    library, name = part.class_name
    module = library if library in ("diffusers", "transformers") else f"diffusers.pipelines.{library}"
    cls = getattr(importlib.import_module(module), name)
    with torch.device("meta"):
        if hasattr(cls, "load_config"):
            return cls.from_config(dict(part.config))
        return cls(cls.config_class(**part.config))


@pytest.mark.parametrize("name", PARTS)
def test_the_rules_are_those_of_the_class(name: str) -> None:
    part = PARTS[name]
    module, facts = build(name), class_facts(part.class_name[1])
    saved = set(module.state_dict())
    buffers = dict(module.named_buffers())
    made = {tensor.name: (tensor.shape, tensor.dtype) for tensor in facts.made(part.config, "float32")}
    assert made == {
        name: (tuple(buffer.shape), str(buffer.dtype).removeprefix("torch."))
        for name, buffer in buffers.items()
        if name not in saved
    }
    assert {name for name in saved if facts.is_buffer(name)} == set(buffers) & saved
    assert set(facts.tied(part.config)) == ties(module)
    keeps = tuple(getattr(module, "_keep_in_fp32_modules", None) or ())
    assert keeps in (facts.float32, facts.float32_under_half)


@pytest.mark.parametrize("name", PARTS)
def test_a_sheet_has_the_tensors_of_its_class_in_their_order(name: str) -> None:
    part = PARTS[name]
    module = build(name)
    tied = {second for _, second in class_facts(part.class_name[1]).tied(part.config)}
    wanted = [(name, tuple(t.shape)) for name, t in module.state_dict().items() if name not in tied]
    assert [(tensor.name, tensor.shape) for tensor in part.tensors] == wanted


def ties(module: Any) -> set[tuple[str, ...]]:
    names: dict[int, list[str]] = {}
    for name, parameter in module.named_parameters(remove_duplicate=False):
        names.setdefault(id(parameter), []).append(name)
    return {tuple(found) for found in names.values() if len(found) > 1}


def test_every_class_that_diffusers_keeps_in_float32_is_known_or_has_no_layers_here() -> None:
    """A class with layers of ours and an island that the table does not know would be planned too small."""
    import diffusers

    sources = (Path(diffusers.__file__).parent / "models").rglob("*.py")
    keeping: set[str] = set()
    for source in sources:
        text = source.read_text(encoding="utf-8")
        for found in re.finditer(r"^class (\w+)\(.*?(?=^class |\Z)", text, re.MULTILINE | re.DOTALL):
            if re.search(r"^    _keep_in_fp32_modules = \[", found[0], re.MULTILINE):
                keeping.add(found[1])
    assert "WanTransformer3DModel" in keeping
    assert {name for name in keeping & set(known_classes()) if not class_facts(name).float32} == set()


def test_names_of_older_files_lead_to_the_module() -> None:
    vision = class_facts("Qwen2_5_VLForConditionalGeneration")
    assert vision.module_name("visual.blocks.0.norm1.weight") == "model.visual.blocks.0.norm1.weight"
    assert vision.module_name("model.layers.3.mlp.up_proj.weight") == "model.language_model.layers.3.mlp.up_proj.weight"
    assert vision.module_name("model.language_model.norm.weight") == "model.language_model.norm.weight"
    clip = class_facts("CLIPTextModel")
    assert clip.module_name("text_model.encoder.layers.0.mlp.fc1.weight") == "encoder.layers.0.mlp.fc1.weight"
