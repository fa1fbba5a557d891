"""What quantisation makes of a component's weights, as far as names and shapes tell. No torch."""

import re
from dataclasses import replace
from math import ceil

from framework.planning.owners import Weight
from framework.planning.tensors import Tensor
from framework.quantization import Quantization

LEFT_ALONE = ("pos_embed", "patch_embed", "norm", "^proj_in$", "^proj_out$")
"""Names that diffusers keeps in full, `DEFAULT_SKIP_MODULES_PATTERN`; classes may keep more."""

NOTE = "bytes of quantised weights are by names and shapes: scales, and what its class keeps in full, are not counted"


def quantized_weight(weight: Weight, quantization: Quantization) -> Weight:
    """Return a weight as the method keeps it: matrices of linear layers take its bytes, everything else its own."""
    tensor, width = weight.tensor, quantization.method.weight_bytes
    name, _, last = tensor.name.rpartition(".")
    matrix = last == "weight" and len(tensor.shape) == 2 and tensor.floating and not weight.gathered
    if width is None or not matrix or any(re.search(pattern, name) for pattern in (*quantization.skip, *LEFT_ALONE)):
        return weight
    rows, columns = tensor.shape
    return replace(weight, tensor=Tensor(tensor.name, (rows, ceil(columns * width)), "int8"))
