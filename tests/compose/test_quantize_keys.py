"""`numerics.quantize`: what it may say, whom it means, and what it is refused with."""

import pytest

from framework.compose import compose
from framework.errors import ConfigError
from framework.spec import RunSpec

WAN = "pipeline=wan2"


def composed(*words: str) -> RunSpec:
    return compose([WAN, *words])


def methods(*words: str) -> dict[str, str]:
    return {name: found.method.name for name, found in composed(*words).numerics.quantize.items()}


def message(*words: str) -> str:
    with pytest.raises(ConfigError) as caught:
        composed(*words)
    return str(caught.value)


def test_a_method_may_be_a_name_or_a_map() -> None:
    assert methods("numerics.quantize.transformer=torchao-int8") == {"transformer": "torchao-int8"}
    spec = composed("numerics.quantize={transformer: {method: Torchao_Int8, compute_dtype: float16, skip: [to_q]}}")
    found = spec.numerics.quantize["transformer"]
    assert (found.method.name, found.compute_dtype, found.skip) == ("torchao-int8", "float16", ("to_q",))


def test_an_exact_name_beats_a_group_whatever_the_order() -> None:
    both = "numerics.quantize={transformer_2: torchao-fp8, dit: torchao-int8}"
    assert methods(both) == {"transformer": "torchao-int8", "transformer_2": "torchao-fp8"}
    assert methods("numerics.quantize={transformer: off, dit: torchao-int8}") == {"transformer_2": "torchao-int8"}


def test_it_is_said_that_the_picture_changes() -> None:
    notes = composed("numerics.quantize.transformer=torchao-int8").notes
    assert any("transformer is torchao-int8" in note and "changes the picture" in note for note in notes)


def test_a_gguf_file_is_a_method_by_itself_and_none_goes_with_another_file() -> None:
    source = "pipeline.components.transformer.source=me/files/expert.gguf"
    assert methods(source) == {"transformer": "gguf"}
    assert methods(source, "numerics.quantize.transformer=gguf") == {"transformer": "gguf"}
    assert "comes from a GGUF file" in message(source, "numerics.quantize.transformer=torchao-int8")
    assert "gguf needs a file; set pipeline.components.vae.source to a .gguf file" in message(
        "numerics.quantize.vae=gguf"
    )


def test_what_is_not_there_is_named_with_its_place() -> None:
    assert "(from the command line: numerics.quantize.tranformer=gguf): numerics.quantize.tranformer" in message(
        "numerics.quantize.tranformer=gguf"
    )
    assert "does not compute in 'int8'" in message(
        "numerics.quantize={dit: {method: torchao-int8, compute_dtype: int8}}"
    )
    assert "numerics.quantize.dit: the key 'method' is required" in message("numerics.quantize={dit: {skip: [a]}}")
    assert "backend" in message("numerics.quantize={dit: {method: gguf, backend: x}}")


def test_a_mode_that_the_method_cannot_do_is_refused_for_the_user_and_falls_back_below() -> None:
    asked = message("numerics.quantize.transformer=bnb-nf4", "component_residency.transformer=layerwise-offload")
    assert "'transformer' cannot do layerwise-offload: its weights are quantised by bnb-nf4" in asked
    assert "resident would work" in asked
    spec = composed("numerics.quantize.transformer=bnb-nf4")
    assert spec.placements["transformer"].mode == "resident"
    assert any("falls back to resident" in note for note in spec.notes)


def test_a_method_that_can_be_streamed_is() -> None:
    assert composed("numerics.quantize.dit=torchao-int8").placements["transformer"].mode == "layerwise-offload"


def test_a_device_that_the_method_has_no_kernels_for_is_refused_where_it_is_named() -> None:
    quantized = "numerics.quantize.transformer=bnb-nf4"
    assert "bnb-nf4 cannot be used on sim; it computes on cuda" in message(quantized, "device=sim")
    composed(quantized, "device=auto")


def test_an_unused_expert_is_not_quantised() -> None:
    one_expert = "pipeline.stages.denoise.component_uses=[{component: transformer}]"
    assert methods(one_expert, "numerics.quantize.dit=torchao-int8") == {"transformer": "torchao-int8"}
