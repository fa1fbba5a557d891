"""Forecasts against the real engine on the simulated device: peaks to the byte, times within three percent."""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
import sim_rig as rig
import torch

from framework.planning.facts import Choice
from framework.planning.forecast import forecast
from framework.planning.packing import GRANULE_BYTES
from framework.planning.problem import LAYERWISE, RESIDENT, WHOLE
from framework.platforms.hardware import HardwareProfile, load_hardware
from framework.spec import ComponentUse

ENCODER = rig.Part(stacks=(((256, 4),) * 6,), group="text_encoder")
EXPERT = rig.Part(stacks=(((1024, 8),) * 8,))
UNEVEN = rig.Part(stacks=(((1024, 8), (300, 6), (700, 2)), ((2000, 8), (100, 4))))
VAE = rig.Part(stacks=(((400, 8),) * 3,), group="vae")


def use(component: str, phase: str | None = None, entry: bool = False) -> ComponentUse:
    return ComponentUse(component=component, phase=phase, start_at_stage_entry=entry)


def profile(tflops: float, **options: float) -> HardwareProfile:
    """Copies of 128 KiB take about as long as a product of 8 rows at 1/8 TFLOP/s (`tflops` 1): rows cost time."""
    known = {"launch_us": 0.05, "h2d_pinned_gbps": 12.0, **options}
    return rig.scaled(load_hardware("rtx_4090"), tflops / 8, **known)


def image(tflops: float, denoiser: rig.Part = EXPERT, **options: float) -> rig.Script:
    """Text to image: encode, denoise, decode."""
    return rig.Script(
        parts={"text_encoder": ENCODER, "transformer": denoiser, "vae": VAE},
        uses={
            "encode": (use("text_encoder"),),
            "denoise": (use("transformer"),),
            "decode": (use("vae", entry=True),),
            "export": (),
        },
        calls={
            "encode": (("text_encoder", 2),),
            "denoise": (("transformer", 8),),
            "decode": (("vae", 1),),
            "export": (),
        },
        profile=profile(tflops, **options),
    )


def video(tflops: float) -> rig.Script:
    """Two experts that take turns, after an encoder."""
    return rig.Script(
        parts={"text_encoder": ENCODER, "transformer": EXPERT, "transformer_2": EXPERT, "vae": VAE},
        uses={
            "encode": (use("text_encoder"),),
            "denoise": (use("transformer", "high"), use("transformer_2", "low")),
            "decode": (use("vae", entry=True),),
        },
        calls={
            "encode": (("text_encoder", 1),),
            "denoise": (("transformer", 5), ("transformer_2", 7)),
            "decode": (("vae", 1),),
        },
        profile=profile(tflops),
    )


def choice(name: str, mode: str, stacks: int = 1, prefetch: int = 1, resident: int = 0, **options: str) -> Choice:
    return Choice(component=name, mode=mode, prefetch=(prefetch,) * stacks, resident=(resident,) * stacks, **options)


def choices(script: rig.Script, encoder: str, denoiser: str, vae: str, **knobs: object) -> dict[str, Choice]:
    found = {}
    for name, part in script.parts.items():
        mode = {"text_encoder": encoder, "vae": vae}.get(name, denoiser)
        own = knobs if part.group == "dit" else {}
        found[name] = choice(name, mode, len(part.stacks), **own)  # type: ignore[arg-type]
    return found


CASES: dict[str, tuple[rig.Script, tuple[str, str, str], dict[str, Any]]] = {
    "all resident": (image(1.0), (RESIDENT, RESIDENT, RESIDENT), {}),
    "all whole": (image(1.0), (WHOLE, WHOLE, WHOLE), {}),
    "all streamed, balanced": (image(1.0), (LAYERWISE, LAYERWISE, LAYERWISE), {}),
    "bus-bound": (image(20.0), (LAYERWISE, LAYERWISE, WHOLE), {}),
    "compute-bound": (image(0.2), (LAYERWISE, LAYERWISE, WHOLE), {}),
    "nothing ahead": (image(1.0), (WHOLE, LAYERWISE, RESIDENT), {"prefetch": 0}),
    "three ahead, bus-bound": (image(4.0), (WHOLE, LAYERWISE, WHOLE), {"prefetch": 3}),
    "half resident, strided": (image(4.0), (WHOLE, LAYERWISE, WHOLE), {"resident": 4}),
    "half resident, leading": (image(4.0), (WHOLE, LAYERWISE, WHOLE), {"resident": 4, "policy": "leading"}),
    "all layers resident": (image(4.0), (WHOLE, LAYERWISE, WHOLE), {"resident": 8}),
    "retained": (image(2.0), (LAYERWISE, LAYERWISE, WHOLE), {"resident": 3, "lifetime": "retained"}),
    "uneven stacks": (image(2.0, UNEVEN), (WHOLE, LAYERWISE, WHOLE), {}),
    "uneven stacks, one of each resident": (image(4.0, UNEVEN), (WHOLE, LAYERWISE, RESIDENT), {"resident": 1}),
    "launch-bound": (image(50.0, launch_us=40.0), (RESIDENT, LAYERWISE, WHOLE), {}),
    "half of a copy blocks": (image(2.0, overlap=0.5), (WHOLE, LAYERWISE, WHOLE), {}),
    "two experts share a ring": (video(1.0), (LAYERWISE, LAYERWISE, WHOLE), {}),
    "two experts, bus-bound": (video(8.0), (LAYERWISE, LAYERWISE, WHOLE), {"prefetch": 2}),
    "two experts with residents": (video(2.0), (LAYERWISE, LAYERWISE, WHOLE), {"resident": 3}),
    "the loop says its steps": (replace(image(8.0), stepped=True), (WHOLE, LAYERWISE, WHOLE), {}),
    "two experts whose loop says its steps": (
        replace(video(4.0), stepped=True),
        (LAYERWISE, LAYERWISE, WHOLE),
        {"prefetch": 2},
    ),
    "permanent": (image(2.0), (WHOLE, LAYERWISE, WHOLE), {"resident": 3, "lifetime": "permanent"}),
    "two experts retained": (video(2.0), (WHOLE, LAYERWISE, WHOLE), {"resident": 3, "lifetime": "retained"}),
    "parked": (
        replace(image(2.0), parked=frozenset(("text_encoder", "transformer"))),
        (LAYERWISE, LAYERWISE, WHOLE),
        {},
    ),
    "two experts whole": (video(1.0), (WHOLE, WHOLE, WHOLE), {}),
}


@pytest.fixture(autouse=True)
def _no_grad() -> Iterator[None]:
    with torch.no_grad():
        yield


@pytest.mark.parametrize("name", CASES)
def test_peaks_are_the_ledgers_and_times_the_clocks(name: str) -> None:
    script, modes, knobs = CASES[name]
    placed = choices(script, *modes, **knobs)
    predicted = forecast(rig.problem_of(script), placed)
    measured = rig.run(script, placed)
    assert {stage.stage: stage.peak_bytes for stage in predicted.stages} == measured.peaks
    assert predicted.pinned_bytes == measured.pinned_bytes
    assert predicted.seconds - predicted.load_s == pytest.approx(measured.seconds, rel=0.03)


@pytest.mark.parametrize("name", ["all whole", "half resident, strided", "two experts share a ring"])
def test_the_planned_peak_is_enough_and_a_granule_less_fails_where_the_plan_says(name: str) -> None:
    script, modes, knobs = CASES[name]
    placed = choices(script, *modes, **knobs)
    predicted = forecast(rig.problem_of(script), placed)
    highest = next(stage.stage for stage in predicted.stages if stage.peak_bytes == predicted.peak_bytes)
    assert max(rig.run(script, placed, predicted.peak_bytes).peaks.values()) == predicted.peak_bytes
    with pytest.raises(rig.OutOfRoom, match=f"^{highest}$"):
        rig.run(script, placed, predicted.peak_bytes - GRANULE_BYTES)


@pytest.mark.parametrize(("prefetch", "pinned"), [(0, 0), (1, 0), (1, 300_000), (3, 900_000)])
def test_what_may_not_be_pinned_passes_through_staging_buffers_or_holds_the_host_up(prefetch: int, pinned: int) -> None:
    script = replace(image(4.0), pinned=pinned)
    placed = choices(script, WHOLE, LAYERWISE, WHOLE, prefetch=prefetch)
    problem = rig.problem_of(script)
    # The simulated host copies into its buffers in no time.
    predicted = forecast(problem, placed, rates=replace(problem.make_rates(), stage_s=0.0))
    measured = rig.run(script, placed)
    assert {stage.stage: stage.peak_bytes for stage in predicted.stages} == measured.peaks
    assert predicted.pinned_bytes == measured.pinned_bytes
    assert predicted.seconds - predicted.load_s == pytest.approx(measured.seconds, rel=0.03)


def test_the_real_host_takes_its_time_for_staging() -> None:
    script = image(4.0)
    placed = choices(script, WHOLE, LAYERWISE, WHOLE)
    pinned = forecast(rig.problem_of(script), placed)
    pageable = forecast(rig.problem_of(replace(script, pinned=100_000)), placed)
    assert pageable.stages[1].seconds > 1.1 * pinned.stages[1].seconds
    assert pageable.stages[1].peak_bytes == pinned.stages[1].peak_bytes
