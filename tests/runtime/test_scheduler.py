"""Requests through the stages: order, seeds, failures that name their place, values that are no numbers."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import spec_builders
import torch
from spec_builders import EXPERTS, request

from framework.errors import Interrupted, StageError
from framework.graph import build_graph
from framework.registry import register_stage
from framework.runtime.events import EventBus, Note, RequestStarted, StageStarted, UseFinished, UseStarted
from framework.runtime.scheduler import run_requests, with_seeds
from framework.spec import ComponentUse, StageSpec
from framework.values import Frames

Named = Callable[[str], Any]


@contextmanager
def planted(weight: torch.Tensor, value: float) -> Iterator[None]:
    """Put `value` into the first element of a weight for the block."""
    flat = weight.view(-1)
    kept = flat[0].clone()
    flat[0] = value
    try:
        yield
    finally:
        flat[0] = kept


@register_stage("peek_undeclared")
class PeekUndeclared:
    """Asks for a component that it did not declare."""

    inputs = ("latents",)
    outputs = ()
    component_uses = (ComponentUse(component="transformer", start_at_stage_entry=False),)

    def run(self, ctx: Any) -> dict[str, Any]:
        with ctx.use("vae"):
            return {}


@register_stage("call_undeclared")
class CallUndeclared(PeekUndeclared):
    """Reaches an undeclared component through the view, without asking."""

    def run(self, ctx: Any) -> dict[str, Any]:
        ctx.pipeline_view().vae.decode(ctx.values["latents"].data)
        return {}


def with_stage(loaded: Any, kind: str) -> Any:
    """The loaded pipeline with `decode` and `export` replaced by one stage of `kind`."""
    spec, _, store = loaded
    stages = {name: stage for name, stage in spec.stages.items() if name not in ("decode", "export")}
    stages["last"] = StageSpec(name="last", kind=kind)
    changed = type(spec)(**{**{f: getattr(spec, f) for f in spec.__slots__}, "stages": stages})
    return changed, build_graph(changed), store


def test_each_expert_is_in_use_from_its_first_to_its_last_call(loaded_stores: Named) -> None:
    _, recorder = spec_builders.run(loaded_stores("wan22"), request())
    log = [
        f"{'+' if isinstance(event, UseStarted) else '-'}{event.component}"
        for event in recorder.events
        if isinstance(event, UseStarted | UseFinished)
    ]
    assert log == [
        "+text_encoder",
        "-text_encoder",
        "+transformer",
        "-transformer",
        "+transformer_2",
        "-transformer_2",
        "+vae",
        "-vae",
    ]
    assert [event.phase for event in recorder.of(UseStarted)] == [None, "high_noise", "low_noise", None]


def test_stages_follow_the_graph(loaded_stores: Named) -> None:
    _, recorder = spec_builders.run(loaded_stores("wan21"), request())
    assert [(event.stage, event.index, event.num_stages) for event in recorder.of(StageStarted)] == [
        (name, index, 4) for index, name in enumerate(spec_builders.STANDARD_KINDS)
    ]


def test_drawn_seeds_are_told_and_repeat_the_picture(loaded_stores: Named) -> None:
    result, recorder = spec_builders.run(loaded_stores("wan21"), request(seeds=None, num_outputs=2))
    (started,) = recorder.of(RequestStarted)
    assert started.seeds == result.requests[0].seeds
    again, _ = spec_builders.run(loaded_stores("wan21"), request(seeds=started.seeds, num_outputs=2))
    assert torch.equal(again.requests[0].values["frames"].data, result.requests[0].values["frames"].data)


def test_drawn_seeds_differ_and_fit_63_bits() -> None:
    drawn = with_seeds(request(seeds=None, num_outputs=50)).seeds
    assert drawn is not None
    assert len(set(drawn)) == 50
    assert all(0 <= seed < 2**63 for seed in drawn)


def test_an_undeclared_use_names_stage_and_component(loaded_stores: Named) -> None:
    with pytest.raises(StageError, match=r"stage 'last' uses component 'vae' without declaring it"):
        spec_builders.run(with_stage(loaded_stores("wan21"), "peek_undeclared"), request())


def test_a_call_around_the_context_is_refused_too(loaded_stores: Named) -> None:
    with pytest.raises(StageError, match=r"stage 'last' calls component 'vae' outside a use it declared"):
        spec_builders.run(with_stage(loaded_stores("wan21"), "call_undeclared"), request())


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_a_bad_denoiser_weight_names_stage_step_and_component(loaded_stores: Named, value: float) -> None:
    loaded = loaded_stores("wan22")
    weight = loaded[2].module("transformer_2").blocks[1].ffn.net[2].weight
    with (
        planted(weight, value),
        pytest.raises(StageError, match=r"stage 'denoise' computed .* first at step 2 of 3 .*'transformer_2'"),
    ):
        spec_builders.run(loaded, request())


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_a_bad_vae_weight_names_the_decoder(loaded_stores: Named, value: float) -> None:
    loaded = loaded_stores("wan21")
    with (
        planted(loaded[2].module("vae").decoder.conv_out.weight, value),
        pytest.raises(StageError, match=r"stage 'decode' computed .* first in the VAE's decoder .*'vae'"),
    ):
        spec_builders.run(loaded, request())


def test_a_bad_encoder_weight_names_the_output(loaded_stores: Named) -> None:
    loaded = loaded_stores("wan21")
    weight = loaded[2].module("text_encoder").encoder.final_layer_norm.weight
    with (
        planted(weight, float("nan")),
        pytest.raises(StageError, match=r"stage 'encode_prompt' .* in its output 'prompt_embeds'"),
    ):
        spec_builders.run(loaded, request())


@pytest.mark.parametrize(("at_call", "step"), [(0, 1), (3, 2)])
def test_a_failure_names_stage_step_component_and_layer(loaded_stores: Named, at_call: int, step: int) -> None:
    loaded = loaded_stores("wan21")
    calls: list[int] = []

    def fail(*_: Any) -> None:
        calls.append(1)
        if len(calls) > at_call:
            raise RuntimeError("planted\nsecond line")

    handle = loaded[2].module("transformer").blocks[0].register_forward_pre_hook(fail)
    inside = "in component 'transformer', layer 'blocks.0'"
    place = f"stage 'denoise' failed in step {step} of 3 {inside}: RuntimeError: planted"
    with pytest.raises(StageError) as caught:
        spec_builders.run(loaded, request())
    handle.remove()
    assert str(caught.value) == place


def test_a_failed_request_leaves_the_next_one_as_in_a_fresh_process(loaded_stores: Named) -> None:
    loaded = loaded_stores("wan22")
    expected, _ = spec_builders.run(loaded, request())
    vae = loaded[2].module("vae")
    handle = vae.decoder.conv_out.register_forward_pre_hook(lambda *_: 1 / 0)
    with pytest.raises(StageError):
        spec_builders.run(loaded, request(prompt="another"))
    handle.remove()
    again, _ = spec_builders.run(loaded, request())
    assert torch.equal(again.requests[0].values["frames"].data, expected.requests[0].values["frames"].data)


def test_a_keyboard_interrupt_becomes_ours(loaded_stores: Named) -> None:
    loaded = loaded_stores("wan21")

    def interrupt(*_: Any) -> None:
        raise KeyboardInterrupt

    handle = loaded[2].module("transformer").register_forward_pre_hook(interrupt)
    with pytest.raises(Interrupted):
        spec_builders.run(loaded, request())
    handle.remove()


def test_modes_that_the_cpu_does_not_need_get_one_line(loaded_stores: Named) -> None:
    modes = {"transformer": "layerwise-offload", "text_encoder": "component-offload", "vae": "resident"}
    _, recorder = spec_builders.run(loaded_stores("wan21"), request(), modes=modes)
    (note,) = recorder.of(Note)
    assert "text_encoder (component-offload), transformer (layerwise-offload)" in note.text


def test_values_are_dropped_after_their_last_reader(loaded_stores: Named) -> None:
    result, _ = spec_builders.run(loaded_stores("wan21"), request(), keep=("latents",))
    assert set(result.requests[0].values) == {"latents"}


def test_the_writer_gets_the_frames_of_each_request(loaded_stores: Named) -> None:
    saved: list[tuple[int, tuple[int, ...]]] = []

    class Writer:
        def save(self, frames: Frames, request_index: int) -> None:
            saved.append((request_index, tuple(frames.data.shape)))

    spec_builders.run(loaded_stores("wan21"), request(), request(num_frames=1), writer=Writer())
    assert saved == [(0, (1, 9, 32, 32, 3)), (1, (1, 1, 32, 32, 3))]


def test_an_expert_the_graph_forgot_is_named(tiny_folder: Named) -> None:
    spec = spec_builders.pipeline("wan22", tiny_folder)
    stages = spec_builders.standard_stages(
        False, denoise=StageSpec(name="denoise", kind="denoise", component_uses=EXPERTS[:1])
    )
    loaded = spec_builders.load(spec_builders.pipeline("wan22", tiny_folder, stages=stages))
    with pytest.raises(StageError, match="needs 'transformer_2' below the boundary"):
        run_requests(spec_builders.run_spec(spec), loaded[1], loaded[2], EventBus())
