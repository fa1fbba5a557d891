"""Embeddings as arguments of a call: rows for outputs, names for the negative text, and the denoiser's dtype."""

from pathlib import Path

import pytest
import torch
from PIL import Image
from spec_builders import request

from framework.runtime.family_calls import embedding_arguments, picture_problems, spatial_factor
from framework.values import Embeddings


def embedding(value: float) -> Embeddings:
    mask = torch.ones(1, 3, dtype=torch.long)
    return Embeddings({"prompt_embeds": torch.full((1, 3, 2), value), "prompt_embeds_mask": mask, "pooled": None})


def test_every_part_gets_a_row_for_each_output_and_an_absent_one_is_not_named() -> None:
    found = embedding_arguments(embedding(1.0), embedding(2.0), 2)
    assert {name: part.shape[0] for name, part in found.items()} == {
        "prompt_embeds": 2,
        "prompt_embeds_mask": 2,
        "negative_prompt_embeds": 2,
        "negative_prompt_embeds_mask": 2,
    }
    assert found["negative_prompt_embeds"].eq(2).all()


def test_lists_repeat_each_text_for_its_outputs() -> None:
    texts = [torch.zeros(3, 2), torch.ones(5, 2)]
    found = embedding_arguments(Embeddings({"prompt_embeds": texts}), None, 2)["prompt_embeds"]
    assert [len(text) for text in found] == [3, 3, 5, 5]


def test_numbers_are_cast_and_masks_keep_their_dtype() -> None:
    found = embedding_arguments(embedding(1.0), None, 1, dtype=torch.bfloat16)
    assert found["prompt_embeds"].dtype == torch.bfloat16
    assert found["prompt_embeds_mask"].dtype == torch.long
    texts = Embeddings({"prompt_embeds": [torch.zeros(3, 2)]})
    assert embedding_arguments(texts, None, 1, dtype=torch.float16)["prompt_embeds"][0].dtype == torch.float16


@pytest.mark.parametrize("stored", [torch.float8_e4m3fn, torch.uint8, None])
def test_a_dtype_that_weights_are_only_stored_in_changes_nothing(stored: torch.dtype | None) -> None:
    assert embedding_arguments(embedding(1.0), None, 1, dtype=stored)["prompt_embeds"].dtype == torch.float32


def test_a_kl_autoencoder_halves_space_once_less_than_it_has_blocks() -> None:
    assert spatial_factor({"block_out_channels": [1, 2, 3, 4]}) == 8
    assert spatial_factor({"block_out_channels": [1, 2]}) == 2
    assert spatial_factor({}) == 8


@pytest.mark.parametrize(
    ("size", "reason"),
    [
        ((16, 16), None),
        ((160, 16), None),
        ((15, 40), "15 x 40 pixels: sides of at least 16 and at most 10 to 1 are needed"),
        ((16, 161), "16 x 161 pixels: sides of at least 16 and at most 10 to 1 are needed"),
    ],
)
def test_a_picture_of_a_shape_that_nobody_can_use_is_named(
    size: tuple[int, int], reason: str | None, tmp_path: Path
) -> None:
    Image.new("RGB", size).save(tmp_path / "a.png")
    found = picture_problems(request(image=str(tmp_path / "a.png")), least_side=16, widest=10)
    assert [problem.reason for problem in found] == ([] if reason is None else [reason])
