"""What is measured on a simulated machine is its profile, and what is wrong with a machine shows."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from framework.calibration.measure import HOST, disk_gbps, measure, spills
from framework.calibration.measured import compared, laid_over, rates_of_profile
from framework.errors import PlanError
from framework.platforms import make_platform
from framework.platforms.hardware import HardwareProfile, load_hardware
from framework.platforms.sim.backend import install
from framework.platforms.sim.platform import SimPlatform
from framework.platforms.sim.world import World, start

SMALL = replace(HOST, copy_bytes=1 << 20, device_bytes=1 << 20, rows=64, width=64, tokens=64, pixels=8, launches=20)


@pytest.fixture(autouse=True)
def fresh_world() -> Iterator[None]:
    install()
    start(World())
    yield
    start(World())


def simulated(profile: HardwareProfile, **changes: object) -> SimPlatform:
    start(World(profile, **changes))  # type: ignore[arg-type]
    return SimPlatform()


@pytest.mark.parametrize(
    ("name", "overlap"),
    [
        ("rtx_3060_12gb", 0.8),
        pytest.param("rtx_4090", 1.0, marks=pytest.mark.slow),
        pytest.param("b200", 0.9, marks=pytest.mark.slow),
        pytest.param("apple_m4_max_64gb", 1.0, marks=pytest.mark.slow),
    ],
)
def test_what_is_measured_on_a_simulated_machine_is_its_profile(name: str, overlap: float) -> None:
    profile = replace(load_hardware(name), overlap=overlap)
    found = measure(simulated(profile))
    rates = {rate: (assumed, value) for rate, assumed, value in compared(profile, found)}
    assert set(rates) >= {"matmul_tflops", "attention_tflops", "h2d_pinned_gbps", "h2d_pageable_gbps", "launch_us"}
    assert all(value == pytest.approx(assumed, rel=1e-6) for assumed, value in rates.values())
    again = laid_over(profile, found, profile.source)
    assert all(value == pytest.approx(assumed) for _, assumed, value in compared(profile, rates_of_profile(again)))
    assert (again.memory_gib, again.reserve_gib) == (profile.memory_gib, profile.reserve_gib)
    assert (found.spread, found.spills, found.disk_gbps) == (0.0, False, None)
    assert found.seconds < 60
    assert found.others_bytes == pytest.approx(profile.reserve_gib * 1024**3, abs=1)


def test_a_slow_link_shows_in_the_copies_alone() -> None:
    platform = simulated(load_hardware("rtx_4090"))
    platform.world.faults.link_slowdown = 4.0
    found = measure(platform)
    assert found.h2d_pinned_gbps == pytest.approx(6.25)
    assert found.d2h_gbps == pytest.approx(6.25)
    assert found.memory_gbps == pytest.approx(1008)


def test_a_card_that_is_full_is_refused_with_a_line() -> None:
    platform = simulated(load_hardware("rtx_4090"), capacity_bytes=1 << 20)
    with pytest.raises(PlanError, match="sim:0 has too little free memory to be measured"):
        measure(platform)


def test_a_driver_that_gives_more_than_there_is_spills(monkeypatch: pytest.MonkeyPatch) -> None:
    platform = simulated(load_hardware("rtx_4090"))
    assert not spills(platform)
    asked: list[int] = []
    monkeypatch.setattr(platform, "reserve", asked.append)
    assert spills(platform)
    assert asked == [platform.memory().free_bytes + (1 << 30)]
    assert not spills(make_platform("cpu"))  # one memory: there is nothing to spill from


def test_the_processor_is_measured_by_the_wall_clock(tmp_path: Path) -> None:
    torch.manual_seed(0)
    found = measure(make_platform("cpu"), tmp_path, replace(SMALL, disk_bytes=8 << 20, repeats=2))
    assert found.overlap is None  # one queue for all
    assert found.h2d_pinned_gbps == found.h2d_pageable_gbps
    rates = {rate: value for rate, _, value in compared(load_hardware("cpu"), found)}
    assert set(rates) >= {"matmul_tflops", "fp32_tflops", "attention_tflops", "conv_tflops", "launch_us"}
    assert all(value > 0 for value in rates.values())
    assert list(tmp_path.iterdir()) == []  # nothing is left behind


def test_a_disk_that_cannot_be_written_is_not_measured(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    assert disk_gbps(tmp_path / "file" / "folder", 1 << 20) is None
