"""Families of pictures from their packaged configs: the stages give the bytes of the plain call, latents and pixels."""

from collections.abc import Callable
from typing import Any

import pytest
import spec_builders
import torch
from image_builders import CASES, Case, family_request, plain_call

from framework.spec import RequestSpec

Named = Callable[[str], Any]
ONCE = ("flux", "flux_kontext", "flux2_klein_edit", "qwen_image", "qwen_image_edit", "z_image", "sd3")
"""One case of each family; the others are the same code asked otherwise."""
TWICE = ("flux_kontext", "z_image", "sd3")
"""Those whose two outputs are not proven by another's: packed latents, lists of embeddings, pooled ones."""


def default(names: tuple[str, ...]) -> list[Any]:
    """All cases; those that are not in `names` are slow."""
    return [name if name in names else pytest.param(name, marks=pytest.mark.slow) for name in CASES]


def assert_equal(values: Any, case: Case, theirs: Any, wanted: RequestSpec) -> None:
    assert torch.equal(values["latents"].data, plain_call(case, theirs, wanted, "latent"))
    pixels = torch.from_numpy(plain_call(case, theirs, wanted, "np")).unsqueeze(1)
    assert values["frames"].data.shape == pixels.shape
    assert torch.equal(values["frames"].data, pixels)


@pytest.mark.parametrize("name", default(ONCE))
def test_stages_equal_the_plain_call(name: str, loaded_families: Named, plain_pipeline: Named, picture: str) -> None:
    case = CASES[name]
    wanted = family_request(case, picture)
    result, _ = spec_builders.run(loaded_families(name), wanted)
    assert_equal(result.requests[0].values, case, plain_pipeline(case.tiny), wanted)


@pytest.mark.parametrize("name", default(TWICE))
def test_two_outputs_equal_one_plain_call_with_two_generators(
    name: str, loaded_families: Named, plain_pipeline: Named, picture: str
) -> None:
    case = CASES[name]
    wanted = family_request(case, picture, seeds=(3, 4), num_outputs=2)
    result, _ = spec_builders.run(loaded_families(name), wanted)
    assert_equal(result.requests[0].values, case, plain_pipeline(case.tiny), wanted)
