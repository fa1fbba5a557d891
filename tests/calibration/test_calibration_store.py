"""What was found of a device is kept by its name, used by hardware=auto, and said with what was wrong."""

from dataclasses import replace
from pathlib import Path

import pytest

from framework.calibration.flags import flags_of
from framework.calibration.measured import Measured, laid_over, rates_of_profile
from framework.calibration.store import Calibration, path_of, read_calibration, write_calibration
from framework.memory.host_budget import HostMemory
from framework.planning import machine
from framework.planning.cards import Card
from framework.planning.machine import key_of, link_gbps, machine_of, resolve_hardware
from framework.platforms.hardware import GIB, HardwareProfile, load_hardware

HOST = HostMemory(48 * GIB, 40 * GIB)
CARD = Card(
    vendor="nvidia",
    name="NVIDIA GeForce RTX 4090",
    memory_bytes=24 * GIB,
    link_generation=4,
    link_width=16,
    uuid="GPU-aaaa",
)
FOUND = Measured(matmul_tflops=99.0, h2d_pinned_gbps=12.5, launch_us=7.0)


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FRAMEWORK_CACHE", str(tmp_path))


def kept(device: str, **changes: object) -> Calibration:
    found = Calibration(device=device, rates=FOUND, made="2026-11-29T12:00:00+00:00", **changes)  # type: ignore[arg-type]
    write_calibration(found)
    return found


def test_what_is_kept_is_read_back_for_its_device_alone() -> None:
    own = kept(key_of(CARD), flags=("busy card: 30 %",))
    assert read_calibration(key_of(CARD)) == own
    assert read_calibration(key_of(replace(CARD, uuid="GPU-bbbb"))) is None


@pytest.mark.parametrize(
    "text", ["", "{", "[]", '{"schema": 9}', '{"schema": 1, "device": "cpu", "rates": {"launch_us": -1}, "made": ""}']
)
def test_a_broken_file_is_as_good_as_none(text: str) -> None:
    kept("cpu")
    path_of("cpu").write_text(text)
    assert read_calibration("cpu") is None


def test_a_rate_that_no_machine_has_is_not_believed() -> None:
    kept("cpu")
    path = path_of("cpu")
    path.write_text(path.read_text().replace("12.5", "-12.5"))
    assert read_calibration("cpu") is None


def test_auto_takes_the_rates_of_its_card_and_keeps_its_sizes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine, "read_cards", lambda: (CARD,))
    monkeypatch.setattr(machine, "read_host_memory", lambda: HOST)
    assumed = resolve_hardware({"name": "auto"}, "cuda")
    assert (assumed.profile.h2d_pinned_gbps, assumed.key) == (25, key_of(CARD))
    kept(key_of(CARD), flags=("downgraded link: slow", "busy card: 30 %"))
    found = resolve_hardware({"name": "auto"}, "cuda")
    assert (found.profile.h2d_pinned_gbps, found.profile.launch_us) == (12.5, 7.0)
    assert rates_of_profile(found.profile).matmul_tflops == pytest.approx(99.0)
    assert rates_of_profile(found.profile).conv_tflops == pytest.approx(82.6)  # not measured: as assumed
    assert (found.profile.memory_gib, found.profile.host_ram_gib) == (24, 48)
    assert found.notes == ("rates measured on 2026-11-29", "calibrate found a downgraded link: slow")
    assert resolve_hardware({"name": "auto", "launch_us": 3}, "cuda").profile.launch_us == 3  # the user's own wins
    assert resolve_hardware({"name": "auto"}, "sim").profile == load_hardware("rtx_4090")


def test_the_processor_has_rates_of_its_own() -> None:
    kept("cpu")
    assert resolve_hardware(None, "cpu").profile.launch_us == 7.0


def test_a_kernel_faster_than_the_peak_raises_it() -> None:
    profile = load_hardware("rtx_4090")
    found = laid_over(profile, Measured(attention_tflops=200.0), "measured")
    assert (found.bf16_tflops, found.efficiency.attention) == (200.0, 1.0)
    before, after = rates_of_profile(profile), rates_of_profile(found)
    assert after.matmul_tflops == pytest.approx(before.matmul_tflops)
    assert after.fp32_tflops == pytest.approx(before.fp32_tflops)


def profile(**changes: object) -> HardwareProfile:
    return replace(load_hardware("rtx_4090"), **changes)  # type: ignore[arg-type]


def test_a_downgraded_link_is_named_against_what_card_and_slot_can_do() -> None:
    slow = Measured(h2d_pinned_gbps=6.0)
    assert "pinned copies reach 6.0 GB/s where 24.6 are usual" in flags_of(slow, profile(), link_gbps(CARD))[0]
    narrow = link_gbps(replace(CARD, link_generation=3, link_width=8))
    assert flags_of(slow, profile(), narrow) == ()  # the slot cannot do more
    assert "where 25.0 are usual" in flags_of(slow, profile())[0]
    assert flags_of(slow, profile(unified=True)) == ()


def test_a_spilling_driver_and_a_busy_card_are_named() -> None:
    assert "spilling driver" in flags_of(Measured(spills=True), profile())[0]
    assert flags_of(Measured(others_bytes=GIB), profile()) == ()  # a desktop, as reserved
    assert flags_of(Measured(others_bytes=6 * GIB), profile()) == ("busy card: 6.0 GiB of 24 GiB are taken by others",)
    assert "timings differ by 50 %" in flags_of(Measured(spread=0.5), profile())[0]


def test_a_measured_link_is_not_guessed_again() -> None:
    narrow = replace(CARD, link_generation=3, link_width=8)
    assert machine_of(narrow, HOST).profile.h2d_pinned_gbps < 7
    assert machine_of(narrow, HOST, kept(key_of(narrow))).profile.h2d_pinned_gbps == 12.5
