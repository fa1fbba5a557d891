"""Every shipped pipeline has an answer on every card under every preset, and presets keep what they promise."""

from dataclasses import replace

import pytest
import shipped_works as shipped
import yaml

from framework.paths import CONF
from framework.planning.machine import shipped_names
from framework.planning.plan import Plan
from framework.planning.refusal import CannotFit
from framework.platforms.hardware import GIB, HardwareProfile

CARDS = {8: "rtx_4060_8gb", 12: "rtx_3060_12gb", 24: "rtx_4090", 80: "a100_80gb"}
PRESETS = ("balanced", "low_vram", "minimal", "resident", "pipeline")
PROMISES = {
    path.stem: yaml.safe_load(path.read_text(encoding="utf-8"))["fits"]
    for path in sorted((CONF / "residency").glob("*.yaml"))
}
DECLARED = [name for name, fits in PROMISES.items() if fits is not None]


def test_the_work_of_every_shipped_pipeline_is_stored() -> None:
    names = {path.stem for path in (CONF / "pipeline").glob("*.yaml")} - {"diffusers"}
    assert set(shipped.PIPELINES) == names, "run tools/make_works.py"


def gib(text: str) -> float:
    assert text.endswith("GiB")
    return float(text.removesuffix("GiB"))


def promised(preset: str) -> HardwareProfile:
    """The machine that a preset is meant for: a card of that size, with that much of host memory."""
    fits = PROMISES[preset]
    device = gib(fits["device"])
    return replace(shipped.card(CARDS[int(device)]), memory_gib=device, host_ram_gib=gib(fits["host"]))


def answer(name: str, hardware: HardwareProfile, preset: str | None) -> Plan | CannotFit:
    try:
        return shipped.plan(name, hardware, preset)
    except CannotFit as refusal:
        return refusal


def check(found: Plan | CannotFit) -> None:
    """A plan stays inside the machine, a refusal says how much of what lacks."""
    if isinstance(found, CannotFit):
        assert found.refusal.lacking_bytes > 0
        assert found.refusal.resource in str(found)
        return
    problem, foretold = found.problem, found.forecast
    assert 0 < foretold.peak_bytes <= problem.device_bytes
    assert foretold.host_bytes <= problem.host_memory.available_bytes
    assert foretold.seconds > foretold.load_s > 0
    assert all(sum(stage.peak_parts.values()) == stage.peak_bytes for stage in foretold.stages)


@pytest.mark.parametrize("preset", DECLARED)
def test_a_preset_fits_every_pipeline_but_those_it_names(preset: str) -> None:
    """ME-06: a preset that promises a card size keeps it at the pipelines' own default requests."""
    hardware, excepted = promised(preset), PROMISES[preset].get("except") or {}
    refused = {}
    for name in shipped.PIPELINES:
        found = answer(name, hardware, preset)
        check(found)
        if isinstance(found, CannotFit):
            refused[name] = str(found).partition("; what would fit")[0]
    assert refused == excepted


def test_a_preset_that_declares_nothing_promises_nothing() -> None:
    assert [name for name, fits in PROMISES.items() if fits is None] == ["auto", "none"]


@pytest.mark.parametrize("name", ["digits", "sdxl", "wan21_1_3b"])
def test_the_planner_is_never_worse_than_a_preset(name: str) -> None:
    found = shipped.plan(name, shipped.card("rtx_3060_12gb"))
    assert found.selection is not None
    assert set(PRESETS) <= set(found.selection.presets)
    others = [seconds for seconds in found.selection.presets.values() if seconds is not None]
    assert others
    assert found.forecast.seconds <= min(others) * 1.000001 + found.problem.simplicity_s * len(found.choices)


@pytest.mark.slow
@pytest.mark.parametrize("name", shipped.PIPELINES)
def test_every_card_and_preset_has_an_answer(name: str) -> None:
    for card in shipped_names():
        for preset in (*PRESETS, None):
            check(answer(name, shipped.card(card), preset))


@pytest.mark.parametrize(
    ("name", "card", "streams"),
    [("wan21_1_3b", "h200", False), ("sdxl", "h200", False), ("flux1_dev", "rtx_4060_8gb", True)],
)
def test_a_big_card_keeps_everything_and_a_small_one_streams(name: str, card: str, streams: bool) -> None:
    found = shipped.plan(name, shipped.card(card))
    modes = {choice.mode for choice in found.choices.values()}
    assert ("layerwise-offload" in modes) == streams
    assert streams or modes == {"resident"}


def test_tiles_are_taken_only_where_nothing_fits_without() -> None:
    small, big = (
        shipped.plan("wan21_1_3b", shipped.card("rtx_4060_8gb")),
        shipped.plan("wan21_1_3b", shipped.card("h200")),
    )
    assert small.tiles
    assert small.numerics.vae_tiling is True
    assert not big.tiles
    assert big.numerics.vae_tiling == "auto"
    assert small.forecast.peak_bytes <= 8 * GIB
