"""A component used in another dtype than it was loaded in: cast copies for the time of a use. Imports torch."""

from collections.abc import Callable

import torch
from torch import Tensor, nn

Undo = Callable[[], None]


def main_dtype(module: nn.Module) -> torch.dtype | None:
    """Return the floating dtype that most bytes of the parameters have, or None without such parameters."""
    sizes: dict[torch.dtype, int] = {}
    for parameter in module.parameters():
        if parameter.is_floating_point():
            sizes[parameter.dtype] = sizes.get(parameter.dtype, 0) + parameter.nbytes
    return max(sizes, key=lambda dtype: sizes[dtype]) if sizes else None


def cast_parameters(module: nn.Module, dtype: torch.dtype) -> Undo:
    """Give `module` copies of its weights in `dtype`; return the call that puts the originals back.

    Only weights of the main dtype are cast: what is kept in float32 on purpose stays. Ties stay ties.
    """
    main = main_dtype(module)
    kept: list[tuple[dict[str, Tensor | None], str, Tensor]] = []
    copies: dict[int, nn.Parameter] = {}
    for part in module.modules():
        holder: dict[str, Tensor | None] = part._parameters  # type: ignore[assignment]
        for name, parameter in holder.items():
            if parameter is not None and parameter.dtype == main != dtype:
                kept.append((holder, name, parameter))
                if id(parameter) not in copies:
                    copies[id(parameter)] = nn.Parameter(parameter.detach().to(dtype), requires_grad=False)
    for holder, name, parameter in kept:
        holder[name] = copies[id(parameter)]

    def undo() -> None:
        for holder, name, parameter in kept:
            holder[name] = parameter

    return undo
