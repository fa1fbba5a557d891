"""Step caches: alike in every mode, fewer copies where blocks are left out, fresh for each request, refused by name."""

import types
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numerics_builders as build
import pytest
import spec_builders
import torch
from torch import Tensor

from framework.errors import ConfigError, StageError
from framework.runtime.step_cache import StepCaches, make_config
from framework.spec import NumericsSpec, PipelineSpec
from framework.step_caches import StepCache

ALWAYS = StepCache(method="first_block", options=(("threshold", 1000.0),))  # from the second step on
CACHES = {
    "first_block": ALWAYS,
    "magcache": StepCache(method="magcache", options=(("mag_ratios", (1.0, 1.0)), ("threshold", 5.0))),
    "taylorseer": StepCache(method="taylorseer", options=(("cache_identifiers", (".*attn1",)), ("cache_interval", 2))),
    "pyramid_attention": StepCache(
        method="pyramid_attention", options=(("spatial_attention_timestep_skip_range", (-1, 2000)),)
    ),
}


def steps_of(cache: StepCache) -> int:
    return {"taylorseer": 6, "first_block": 3}.get(cache.method, 4)


def guidance_of(cache: StepCache) -> float:
    """One pass a step for what keeps one state."""
    return 1.0 if cache.cache.one_pass else 5.0


SLOW = ("taylorseer", "pyramid_attention", "magcache")


@pytest.mark.parametrize(
    "cache",
    [pytest.param(cache, id=name, marks=[pytest.mark.slow] * (name in SLOW)) for name, cache in CACHES.items()],
)
def test_a_cache_changes_the_picture_and_every_mode_gives_the_same(
    cache: StepCache, tiny_folder: Callable[[str], Path]
) -> None:
    spec = build.wan(tiny_folder)
    wanted = build.two_requests(num_inference_steps=steps_of(cache), guidance_scale=guidance_of(cache))
    plain = build.make(spec, NumericsSpec(), wanted[0], mode="layerwise-offload")
    modes = build.MODES[::2]  # moved whole is between the two
    made = {mode: build.make(spec, NumericsSpec(step_cache=cache), *wanted, mode=mode) for mode in modes}
    resident = made["resident"].frames
    assert not torch.equal(resident[0], plain.frames[0])
    assert torch.equal(resident[0], resident[1]), "nothing of a request is left for the next"
    for other in made.values():
        assert all(torch.equal(one, its) for one, its in zip(resident, other.frames, strict=True))
    copies = made["layerwise-offload"].num_copies
    assert (copies < 2 * plain.num_copies * 0.6) == cache.cache.skips_blocks


def test_two_experts_have_a_cache_each(tiny_folder: Callable[[str], Path]) -> None:
    spec, wanted = build.wan(tiny_folder, "wan22"), build.two_requests(guidance_scale=1.0)
    modes = ("resident", "layerwise-offload")
    made = [build.make(spec, NumericsSpec(step_cache=ALWAYS), *wanted, mode=mode) for mode in modes]
    assert all(torch.equal(made[0].frames[0], frames) for other in made for frames in other.frames)


def test_the_loop_is_that_of_diffusers_with_the_same_cache(
    tiny_folder: Callable[[str], Path], plain_pipeline: Callable[[str], Any]
) -> None:
    wanted = build.two_requests()[0]
    made = build.make(build.wan(tiny_folder), NumericsSpec(step_cache=ALWAYS), wanted, device="cpu")
    loaded = plain_pipeline("wan21")
    loaded.transformer.enable_cache(make_config(ALWAYS, wanted, lambda: 0))
    try:
        plain = spec_builders.plain_call(loaded, wanted, "pt")
    finally:
        loaded.transformer.disable_cache()
    assert torch.equal(made.frames[0][0], torch.as_tensor(plain)[0].permute(0, 2, 3, 1))


def test_nothing_is_left_on_a_model_after_a_request_even_one_that_failed(loaded_stores: Callable[[str], Any]) -> None:
    store = loaded_stores("wan21")[2]
    transformer = store.module("transformer")
    forwards = [block.forward for block in transformer.blocks]
    caches = StepCaches(ALWAYS, store, ("transformer",))
    serving = caches.serving(spec_builders.request())
    serving.__enter__()
    assert transformer.is_cache_enabled
    assert all(block._compiled_call_impl is not None for block in transformer.blocks)
    assert not serving.__exit__(ZeroDivisionError, ZeroDivisionError(), None)
    assert not transformer.is_cache_enabled
    assert [block.forward for block in transformer.blocks] == forwards
    assert all(block._compiled_call_impl is None for block in transformer.blocks)
    assert not any(part._diffusers_hook.hooks for part in transformer.modules() if hasattr(part, "_diffusers_hook"))


def test_a_cache_that_keeps_one_state_is_refused_where_guidance_calls_twice(
    tiny_folder: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert refusal(build.wan(tiny_folder), CACHES["pyramid_attention"], monkeypatch) == (
        "numerics.step_cache: pyramid_attention keeps one state, and guidance calls the denoiser of WanPipeline twice "
        "a step; use first_block, or request.guidance_scale=1, which switches guidance off"
    )


def test_a_cache_that_keeps_one_state_stops_where_a_step_calls_twice(
    tiny_folder: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("framework.runtime.numerics._passes", lambda view: 1)  # a pipeline that nobody can look into
    numerics = NumericsSpec(step_cache=CACHES["pyramid_attention"])
    with pytest.raises(
        StageError, match="pyramid_attention keeps one state, and this pipeline calls 'transformer' more"
    ):
        build.make(build.wan(tiny_folder), numerics, build.two_requests()[0], device="cpu")


def test_a_cache_that_finds_nothing_is_refused(loaded_stores: Callable[[str], Any]) -> None:
    store = loaded_stores("wan21")[2]
    caches = StepCaches(StepCache(method="taylorseer"), store, ("transformer",))
    with pytest.raises(
        ConfigError, match=r"taylorseer finds nothing to cache in 'transformer' \(WanTransformer3DModel\)"
    ):
        caches.serving(spec_builders.request()).__enter__()
    assert not store.module("transformer").is_cache_enabled


def refusal(spec: PipelineSpec, cache: StepCache, patch: pytest.MonkeyPatch) -> str:
    patch.setattr("framework.runtime.run.load_store", lambda *words, **more: pytest.fail("loaded"))
    with pytest.raises(ConfigError) as caught:
        build.make(spec, NumericsSpec(step_cache=cache), build.two_requests()[0], device="cpu")
    return str(caught.value)


def test_a_model_without_caches_is_refused_before_loading(
    tiny_folder: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("framework.runtime.step_cache.can_cache", lambda cls: False)
    line = refusal(build.wan(tiny_folder), ALWAYS, monkeypatch)
    assert line == (
        "numerics.step_cache: diffusers has no step cache for 'transformer' (WanTransformer3DModel); set it to off"
    )


def test_a_pipeline_that_lacks_what_a_cache_needs_is_refused_before_loading(
    tiny_folder: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    class Bare:
        def __call__(self) -> None: ...

    monkeypatch.setattr("framework.runtime.numerics.pipeline_class", lambda *words: Bare)
    spec = build.wan(tiny_folder)
    assert "first_block needs a pipeline that names its passes, which Bare does not" in refusal(
        spec, ALWAYS, monkeypatch
    )
    line = refusal(spec, CACHES["pyramid_attention"], monkeypatch)
    assert "pyramid_attention needs a pipeline that tells its timestep, which Bare does not" in line


def test_the_steps_of_a_request_are_told_unless_said_and_dtypes_are_read() -> None:
    request = spec_builders.request(num_inference_steps=7)
    assert make_config(CACHES["magcache"], request, lambda: 0).num_inference_steps == 7
    said = replace(CACHES["magcache"], options=(*CACHES["magcache"].options, ("num_inference_steps", 9)))
    assert make_config(said, request, lambda: 0).num_inference_steps == 9
    taylor = StepCache(method="taylorseer", options=(("taylor_factors_dtype", "float32"),))
    assert make_config(taylor, request, lambda: 0).taylor_factors_dtype == torch.float32
    wrong = StepCache(method="taylorseer", options=(("taylor_factors_dtype", "float33"),))
    with pytest.raises(ConfigError, match=r"options\.taylor_factors_dtype: unknown dtype 'float33'"):
        make_config(wrong, request, lambda: 0)


def test_fastercache_halves_the_batch_of_a_real_model() -> None:
    from diffusers import CogVideoXTransformer3DModel

    torch.manual_seed(0)
    model = CogVideoXTransformer3DModel(
        num_attention_heads=2, attention_head_dim=8, in_channels=4, out_channels=4, time_embed_dim=2,
        text_embed_dim=8, num_layers=2, sample_width=4, sample_height=4, sample_frames=5, patch_size=2,
        max_text_seq_length=4, use_rotary_positional_embeddings=False,
    ).eval()  # fmt: skip
    view = types.SimpleNamespace(current_timestep=torch.tensor(500))
    store = types.SimpleNamespace(module=lambda name: model, views=lambda: (view,))
    cache = StepCache(method="fastercache", options=(("tensor_format", "BFCHW"),))
    sizes: list[int] = []
    model.proj_out.register_forward_hook(lambda part, given, made: sizes.append(made.shape[0]))
    caches = StepCaches(cache, store, ("transformer",))  # type: ignore[arg-type]
    with caches.serving(spec_builders.request()), torch.no_grad():
        for step in range(3):
            view.current_timestep = torch.tensor(500 - step)
            call(model)
    assert sizes == [2, 1, 1]
    sizes.clear()
    call(model)
    assert sizes == [2]


def call(model: Any) -> Tensor:
    generator = torch.Generator().manual_seed(1)
    latents = torch.randn(2, 2, 4, 4, 4, generator=generator)
    text = torch.randn(2, 4, 8, generator=generator)
    with model.cache_context("cond_uncond"):
        found: Tensor = model(hidden_states=latents, encoder_hidden_states=text, timestep=torch.tensor([5, 5])).sample
    return found
