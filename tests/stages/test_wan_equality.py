"""The stages give the same bytes as the plain diffusers call: latents and pictures."""

from collections.abc import Callable
from typing import Any

import pytest
import spec_builders
import torch
from spec_builders import plain_call, request

from framework.spec import RequestSpec

SIZES = {"wan_ti2v": {"height": 64, "width": 64}}
Named = Callable[[str], Any]


def assert_equal(values: Any, theirs: Any, wanted: RequestSpec) -> None:
    assert torch.equal(values["latents"].data, plain_call(theirs, wanted, "latent"))
    pictures = torch.from_numpy(plain_call(theirs, wanted, "np"))
    assert values["frames"].data.shape == pictures.shape
    assert torch.equal(values["frames"].data, pictures)


@pytest.mark.parametrize("name", ["wan21", "wan22", "wan_ti2v", "digits"])
def test_stages_equal_the_plain_call(name: str, loaded_stores: Named, plain_pipeline: Named) -> None:
    wanted = request(**SIZES.get(name, {}))
    result, _ = spec_builders.run(loaded_stores(name), wanted)
    assert_equal(result.requests[0].values, plain_pipeline(name), wanted)


def test_two_outputs_equal_one_plain_call_with_two_generators(loaded_stores: Named, plain_pipeline: Named) -> None:
    wanted = request(seeds=(3, 4), num_outputs=2)
    result, _ = spec_builders.run(loaded_stores("wan22"), wanted)
    assert_equal(result.requests[0].values, plain_pipeline("wan22"), wanted)


def test_without_guidance_no_negative_text_is_encoded(loaded_stores: Named, plain_pipeline: Named) -> None:
    wanted = request(guidance_scale=1.0)
    result, _ = spec_builders.run(loaded_stores("wan21"), wanted, keep=("latents", "frames", "negative_prompt_embeds"))
    assert result.requests[0].values["negative_prompt_embeds"] is None
    assert_equal(result.requests[0].values, plain_pipeline("wan21"), wanted)


def test_each_expert_gets_its_own_guidance(loaded_stores: Named, plain_pipeline: Named) -> None:
    wanted = request(guidance_scale=3.0, guidance_scale_2=6.0)
    result, _ = spec_builders.run(loaded_stores("wan22"), wanted)
    assert_equal(result.requests[0].values, plain_pipeline("wan22"), wanted)


def test_the_requests_of_one_process_do_not_disturb_each_other(loaded_stores: Named, plain_pipeline: Named) -> None:
    wanted = [request(), request(prompt="a dog", seeds=(8,), num_frames=5), request()]
    result, _ = spec_builders.run(loaded_stores("wan22"), *wanted)
    for done, one in zip(result.requests, wanted, strict=True):
        assert_equal(done.values, plain_pipeline("wan22"), one)


def test_the_pipelines_defaults_fill_what_a_request_leaves_open(loaded_stores: Named, plain_pipeline: Named) -> None:
    wanted = request(negative_prompt=None, max_sequence_length=None)
    result, _ = spec_builders.run(loaded_stores("digits"), wanted)
    assert_equal(result.requests[0].values, plain_pipeline("digits"), wanted)


def test_latents_carry_their_sizes_and_the_generators_that_follow(loaded_stores: Named) -> None:
    result, _ = spec_builders.run(loaded_stores("wan_ti2v"), request(height=64, width=96, num_frames=5))
    latents = result.requests[0].values["latents"]
    assert (latents.height, latents.width, latents.num_frames) == (64, 96, 5)
    after = torch.Generator()
    after.set_state(latents.generator_states[0])
    assert not torch.equal(after.get_state(), torch.Generator().manual_seed(7).get_state())
