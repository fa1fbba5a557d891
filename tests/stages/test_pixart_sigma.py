"""PixArt Sigma in stages gives the bytes of the plain call, with and without guidance, one picture or two."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import spec_builders
import torch
from image_builders import Case, family_pipeline, family_request, plain_call

from framework.runtime.events import StepDone
from framework.spec import RequestSpec

AS_IT_IS = {"use_resolution_binning": False, "clean_caption": False}
GUIDED = Case(
    "pixart_sigma",
    "pixart_sigma",
    {"guidance_scale": 3.0, "negative_prompt": "bad"},
    {"guidance_scale": 3.0, "negative_prompt": "bad", **AS_IT_IS},
    words=("pipeline.args.use_resolution_binning=false",),
)
ALONE = Case(
    "pixart_sigma",
    "pixart_sigma",
    {"guidance_scale": 1.0},
    {"guidance_scale": 1.0, **AS_IT_IS},
    words=("pipeline.args.use_resolution_binning=false",),
)


@pytest.fixture(scope="module")
def loaded(tiny_folder: Callable[[str], Path]) -> Any:
    return spec_builders.load(family_pipeline(GUIDED, tiny_folder))


def assert_equal(values: Any, case: Case, theirs: Any, wanted: RequestSpec) -> None:
    assert torch.equal(values["latents"].data, plain_call(case, theirs, wanted, "latent"))
    pixels = torch.from_numpy(plain_call(case, theirs, wanted, "np")).unsqueeze(1)
    assert torch.equal(values["frames"].data, pixels)


@pytest.mark.parametrize("seeds", [(7,), (3, 4)], ids=["one", "two"])
@pytest.mark.parametrize("case", [GUIDED, ALONE], ids=["guided", "alone"])
def test_pixart_sigma_in_stages_equals_the_plain_call(
    case: Case, seeds: tuple[int, ...], loaded: Any, plain_pipeline: Callable[[str], Any]
) -> None:
    wanted = family_request(case, "", seeds=seeds, num_outputs=len(seeds))
    result, recorder = spec_builders.run(loaded, wanted)
    assert_equal(result.requests[0].values, case, plain_pipeline("pixart_sigma"), wanted)
    assert [(done.step, done.num_steps) for done in recorder.of(StepDone)] == [(1, 2), (2, 2)]


def test_a_size_between_the_trained_ones_is_scaled_and_cut(
    tiny_folder: Callable[[str], Path], plain_pipeline: Callable[[str], Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    from diffusers.pipelines.pixart_alpha import pipeline_pixart_sigma

    monkeypatch.setattr(pipeline_pixart_sigma, "ASPECT_RATIO_256_BIN", {"1.0": [32.0, 32.0], "0.5": [32.0, 64.0]})
    theirs = plain_pipeline("pixart_sigma")
    config = theirs.transformer.config
    case = Case(
        "pixart_sigma", "pixart_sigma", {"guidance_scale": 1.0}, {"guidance_scale": 1.0, "clean_caption": False}
    )
    spec, graph, store = spec_builders.load(family_pipeline(case, tiny_folder))
    for transformer in (theirs.transformer, store.module("transformer")):
        monkeypatch.setattr(transformer, "_internal_dict", type(config)({**config, "sample_size": 32}))
    wanted = family_request(case, "", height=32, width=48)
    result, _ = spec_builders.run((spec, graph, store), wanted)
    values = result.requests[0].values
    assert values["frames"].data.shape == (1, 1, 32, 48, 3)
    assert_equal(values, case, theirs, wanted)
