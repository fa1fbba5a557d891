"""What stands for real models in `peers_sim`: machines to scale, steady steps, the real head of a prompt."""

from types import SimpleNamespace
from typing import Any

import pytest

from bench.peers_models import Model, scaled, use_tests
from bench.peers_run import Watch
from bench.peers_settings import STEPS
from bench.peers_tiny import MODELS, QWEN_WORDS
from framework.platforms.hardware import load_hardware

TINY_BYTES, TFLOP = 2_000_000, 3e-5


@pytest.mark.parametrize("model", MODELS.values(), ids=MODELS)
@pytest.mark.parametrize("hardware", ["rtx_3060_12gb", "h100"])
def test_a_machine_keeps_what_decides_between_settings(model: Model, hardware: str) -> None:
    real, tiny = load_hardware(hardware), scaled(model, hardware, TINY_BYTES, TFLOP)
    size = model.denoiser_gb * 1e9
    assert tiny.capacity_bytes / TINY_BYTES == pytest.approx(real.capacity_bytes / size, rel=1e-3)
    computing, copying = model.tflop_per_gb * size / 1e9 / real.bf16_tflops, size / real.h2d_pinned_gbps / 1e9
    own = (TFLOP / tiny.bf16_tflops) / (TINY_BYTES / tiny.h2d_pinned_gbps / 1e9)
    assert own == pytest.approx(computing / copying)


def test_steps_that_were_not_made_last_as_long_as_the_steady_one() -> None:
    """The second step still makes up for what was loaded first; the last one fetches nothing ahead."""
    device = SimpleNamespace(compute_free_s=13.0, ledger=SimpleNamespace(peak_bytes=7))
    world: Any = SimpleNamespace(
        host_s=0.0, devices=[device], moves=[], pinned=SimpleNamespace(peak_bytes=5), synchronize=lambda: None
    )
    watch = Watch(world, steps_at=[5.0, 8.0, 10.0, 11.5])
    row = watch.row("ours, auto", MODELS["flux1_dev"])
    assert len(watch.steps_at) == STEPS
    assert row.step_s == 2.0
    assert row.seconds == 13.0 + (MODELS["flux1_dev"].steps - STEPS) * 2.0


def test_the_head_of_qwens_prompt_has_as_many_tokens_as_the_pipeline_drops() -> None:
    """Else a prompt would lose its beginning, or text would take far more activations than it does really."""
    from diffusers import QwenImagePipeline

    use_tests()
    from tiny.image_transformers import qwen_image

    pipeline: QwenImagePipeline = qwen_image()
    pipeline.tokenizer.add_tokens(QWEN_WORDS)
    head = pipeline.prompt_template_encode.partition("{}")[0]
    assert len(pipeline.tokenizer(head).input_ids) == pipeline.prompt_template_encode_start_idx
