"""What quantisation makes of a component's weights, as far as names and shapes tell. No torch."""

import re
from collections.abc import Iterable, Iterator
from dataclasses import replace
from math import ceil

from framework.planning.class_facts import ClassFacts
from framework.planning.owners import Weight
from framework.planning.tensors import Tensor
from framework.quantization import Quantization

LEFT_ALONE = ("pos_embed", "patch_embed", "norm", "^proj_in$", "^proj_out$")
"""Names that diffusers keeps in full, `DEFAULT_SKIP_MODULES_PATTERN`."""

OF_CLASSES = {
    "WanTransformer3DModel": ("patch_embedding", "condition_embedder"),
    "WanVACETransformer3DModel": ("patch_embedding", "condition_embedder"),
    "ZImageTransformer2DModel": ("t_embedder", "cap_embedder"),
}
"""What classes keep in full besides, their `_skip_layerwise_casting_patterns`."""

SCALE_BYTES = {"torchao-int8": 5, "torchao-fp8": 4}
"""Bytes that each row has besides: a float32 scale, and the zero of integers."""
CASTS_ALL = "layerwise-casting-fp8"  # biases and convolutions too

NOTE = "bytes of quantised weights are by names and shapes: what its class keeps in full may not be known"


def quantized_weights(
    weights: Iterable[Weight], quantization: Quantization, class_name: str | None, facts: ClassFacts
) -> Iterator[Weight]:
    """Yield weights as the method keeps them: matrices of linear layers take its bytes, most others their own."""
    given, width = list(weights), quantization.method.weight_bytes
    if width is None:
        yield from given
        return
    patterns = (*quantization.skip, *LEFT_ALONE, *OF_CLASSES.get(class_name or "", ()), *facts.float32)
    every = quantization.method.name == CASTS_ALL
    layers = {_module(one) for one in given if _is_layer(one, every)}
    for weight in given:
        module, last = _module(weight), weight.tensor.name.rpartition(".")[2]
        taken = module in layers and (last == "weight" or (every and last == "bias"))
        if not taken or any(re.search(pattern, module) for pattern in patterns):
            yield weight
        else:
            yield _in_bits(weight, width, SCALE_BYTES.get(quantization.method.name, 0))


def _module(weight: Weight) -> str:
    return weight.tensor.name.rpartition(".")[0]


def _is_layer(weight: Weight, every: bool) -> bool:
    """Whether it is the weight of a linear layer, or of a convolution where those are taken too."""
    tensor = weight.tensor
    matrix = tensor.name.endswith(".weight") and tensor.floating and not weight.gathered
    return matrix and (len(tensor.shape) >= 2 if every else len(tensor.shape) == 2)


def _in_bits(weight: Weight, width: float, scale_bytes: int) -> Weight:
    """The same weight in whole bytes, with a scale for each row."""
    shape = weight.tensor.shape
    elements = 1
    for size in shape:
        elements *= size
    return replace(
        weight, tensor=Tensor(weight.tensor.name, (ceil(elements * width) + shape[0] * scale_bytes,), "int8")
    )
