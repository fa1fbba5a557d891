"""The stages give the same bytes as the plain diffusers call: latents and pictures."""

from collections.abc import Callable
from typing import Any

import pytest
import spec_builders
from spec_builders import plain_call, request

SIZES = {"wan_ti2v": {"height": 64, "width": 64}}


def check(name: str, wanted: Any, loaded_stores: Callable[[str], Any], plain_pipeline: Callable[[str], Any]) -> None:
    import torch

    result, _ = spec_builders.run(loaded_stores(name), wanted)
    values = result.requests[0].values
    theirs = plain_pipeline(name)
    assert torch.equal(values["latents"].data, plain_call(theirs, wanted, "latent"))
    pictures = torch.from_numpy(plain_call(theirs, wanted, "np"))
    assert values["frames"].data.shape == pictures.shape
    assert torch.equal(values["frames"].data, pictures)


@pytest.mark.parametrize("name", ["wan21", "wan22", "wan_ti2v", "digits"])
def test_stages_equal_the_plain_call(
    name: str, loaded_stores: Callable[[str], Any], plain_pipeline: Callable[[str], Any]
) -> None:
    wanted = request(**SIZES.get(name, {}))
    check(name, wanted, loaded_stores, plain_pipeline)
