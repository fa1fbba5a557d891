"""A loop that is cut short while shapes are passed through is told with all its work."""

from collections import Counter
from contextlib import nullcontext
from typing import Any

import pytest
import torch

from framework.planning.profile_dispatch import FromNumbers, ShapePass
from framework.planning.profile_shortcuts import shortcuts
from framework.planning.profile_tape import Tape
from framework.platforms.sim.backend import install

pytest.importorskip("diffusers.models.autoencoders.autoencoder_kl_hunyuanvideo15")


def mask_of(target: str, short: bool) -> tuple[Counter[Any], int, Any]:
    """The kernels, the peak of memory and the shape of one mask."""
    from diffusers.models.autoencoders.autoencoder_kl_hunyuanvideo15 import HunyuanVideo15AttnBlock as Block

    install()
    pass_ = ShapePass(target)
    with torch.no_grad(), FromNumbers(), pass_, shortcuts(pass_.tape) if short else nullcontext():
        watch = pass_.memory.watch()
        mask = Block.prepare_causal_attention_mask(3, 40, torch.bfloat16, torch.device("sim"), batch_size=2)
        return pass_.tape.current.rows, watch.peak_bytes, (tuple(mask.shape), mask.stride(), mask.dtype)


@pytest.mark.parametrize("target", ["cuda", "sim"])
def test_the_mask_of_hunyuan_videos_vae_has_all_its_rows(target: str) -> None:
    whole, short = mask_of(target, short=False), mask_of(target, short=True)
    assert sum(whole[0].values()) > 120
    assert short == whole


def test_after_a_pass_the_loop_is_what_it_was() -> None:
    from diffusers.models.autoencoders.autoencoder_kl_hunyuanvideo15 import HunyuanVideo15AttnBlock as Block

    before = vars(Block)["prepare_causal_attention_mask"]
    with shortcuts(Tape()):
        assert vars(Block)["prepare_causal_attention_mask"] is not before
    assert vars(Block)["prepare_causal_attention_mask"] is before
    assert torch.equal(
        Block.prepare_causal_attention_mask(2, 1, torch.float32, "cpu"), torch.tensor([[0.0, -torch.inf], [0.0, 0.0]])
    )
