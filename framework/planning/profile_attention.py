"""Attention on shapes alone: the layout of its result and what its kernel needs besides, by device. Imports torch.

Left to itself a device without kernels takes the path that builds the whole matrix of scores.
"""

from functools import cache
from typing import TYPE_CHECKING, Any

import torch

from framework.planning.profile_tensor import ShapeTensor, fresh, touched_bytes
from framework.platforms.sim.recipes import Recipe

if TYPE_CHECKING:
    from framework.planning.profile_dispatch import ShapePass

MATH = 0  # torch.nn.attention.SDPBackend.MATH
FLASH_WIDTH = 256
"""The widest head of flash attention; wider ones take the memory-efficient kernel."""


def attend(
    pass_: "ShapePass",
    recipe: Recipe,
    query: Any,
    key: Any,
    value: Any,
    attn_mask: Any = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    *,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> ShapeTensor:
    """Return the result of `scaled_dot_product_attention`; queries are `(batch, heads, tokens, width)`."""
    shape = (*query.shape[:-1], value.shape[-1])
    transposed = _lies_by_token(pass_, query, key, value, attn_mask, is_causal, enable_gqa)
    raw = torch.empty(shape, dtype=query.dtype, device="meta")
    if transposed:
        raw = torch.empty((shape[0], shape[2], shape[1], shape[3]), dtype=query.dtype, device="meta").transpose(1, 2)
    made = fresh(raw, pass_.memory)
    if pass_.target != "sim":
        pass_.memory.spike(_workspace_bytes(query, attn_mask))
    operands = [one for one in (query, key, value, attn_mask) if isinstance(one, ShapeTensor)]
    for one in operands:
        if one.block.owner is not None:
            pass_.tape.read(one.block.owner)
    size_bytes = sum(touched_bytes(one) for one in (*operands, made))
    assert recipe.flops is not None
    kind, count = recipe.flops
    pass_.tape.add(kind, count((query, key, value), made), size_bytes, str(query.dtype).removeprefix("torch."))
    return made


def _workspace_bytes(query: torch.Tensor, mask: torch.Tensor | None) -> int:
    """The logarithms of the sums of every row, and a mask whose rows had to be widened to a multiple of 8."""
    tokens = -(-query.shape[-2] // 32) * 32
    rows = 4 * tokens * query.shape[:-2].numel()
    if mask is None or mask.shape[-1] % 8 == 0:
        return rows
    return rows + mask.numel() // mask.shape[-1] * -(-mask.shape[-1] // 8) * 8 * query.element_size()


def _lies_by_token(
    pass_: "ShapePass", query: Any, key: Any, value: Any, mask: Any, is_causal: bool, enable_gqa: bool
) -> bool:
    """Whether the kernel writes tokens before heads, as all fused ones do, instead of heads before tokens."""
    if query.dim() != 4:
        return False
    if pass_.target != "sim":
        return True
    layouts = tuple(_layout(one) for one in (query, key, value, mask))
    return _host_choice(layouts, is_causal, enable_gqa) != MATH


def _layout(tensor: torch.Tensor | None) -> Any:
    return None if tensor is None else (tuple(tensor.shape), tuple(tensor.stride()), tensor.dtype)


@cache
def _host_choice(layouts: tuple[Any, ...], is_causal: bool, enable_gqa: bool) -> int:
    """Ask PyTorch which kernel the host takes, whose numbers the simulated device computes; memory stays untouched."""
    layers: list[Any] = [None if one is None else torch.empty_strided(one[0], one[1], dtype=one[2]) for one in layouts]
    query, key, value, mask = layers
    choice: int = torch._fused_sdp_choice(query, key, value, mask, 0.0, is_causal, enable_gqa=enable_gqa)
    return choice
