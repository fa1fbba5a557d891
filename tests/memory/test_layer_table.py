"""Every class of the table is found in the libraries and streams what the table says."""

import pytest
import torch

from framework.memory import layer_table
from framework.memory.layers import check_coverage, find_stacks


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted({**layer_table._DIFFUSERS, **layer_table._VAES}))
def test_paths_of_a_diffusers_class_exist_and_hold_most_weights(name: str) -> None:
    import diffusers

    with torch.device("meta"):
        model = getattr(diffusers, name)()
    stacks = find_stacks("dit", model)
    in_layers = sum(p.nbytes for stack in stacks for layer in stack.layers for p in layer.module.parameters())
    check_coverage("dit", in_layers, sum(p.nbytes for p in model.parameters()))


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(layer_table._TRANSFORMERS))
def test_paths_of_a_transformers_class_exist(name: str) -> None:
    import transformers

    cls = getattr(transformers, name)
    with torch.device("meta"):
        model = cls(cls.config_class())
    assert find_stacks("text_encoder", model)
