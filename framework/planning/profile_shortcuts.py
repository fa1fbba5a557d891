"""Loops of models that write thousands of rows alike: one of them is passed through, the others are counted. Torch."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch

from framework.planning.profile_tape import Tape

CAUSAL_MASK = ("diffusers.models.autoencoders.autoencoder_kl_hunyuanvideo15", "prepare_causal_attention_mask")
"""The VAE of HunyuanVideo 1.5 writes its mask token by token: 50,000 rows for five seconds at 480p."""


@contextmanager
def shortcuts(tape: Tape) -> Iterator[None]:
    """Let the loops that are known here be short while requests are passed through; their work is the same."""
    module, name = sys.modules.get(CAUSAL_MASK[0]), CAUSAL_MASK[1]
    owners = [one for one in vars(module).values() if isinstance(one, type) and name in vars(one)] if module else []
    kept = [(owner, vars(owner)[name]) for owner in owners]

    def mask(n_frame: int, n_hw: int, dtype: Any, device: Any, batch_size: int | None = None) -> torch.Tensor:
        """As diffusers has it, but for a row of each frame instead of all that are alike."""
        length = n_frame * n_hw
        mask = torch.full((length, length), float("-inf"), dtype=dtype, device=device)
        for frame in range(n_frame):
            with tape.repeated(n_hw):
                mask[frame * n_hw, : (frame + 1) * n_hw] = 0
        return mask if batch_size is None else mask.unsqueeze(0).expand(batch_size, -1, -1)

    for owner in owners:
        setattr(owner, name, staticmethod(mask))
    try:
        yield
    finally:
        for owner, original in kept:
            setattr(owner, name, original)
