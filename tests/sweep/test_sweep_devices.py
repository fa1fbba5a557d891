"""Devices without torch: what is there, and what a worker is shown of it."""

from pathlib import Path

import pytest

from framework.errors import ConfigError
from framework.platforms.visible import SIM_VARIABLE, check_visible
from framework.sweep.devices import CUDA_VARIABLE, Device, find_devices, visible_gpus
from framework.sweep.places import places_of


def seen(devices: list[Device], variable: str = CUDA_VARIABLE) -> list[str]:
    return [device.environment[variable] for device in devices]


def test_numbers_are_relative_to_what_the_parent_sees() -> None:
    """SW-03 and SW-04: only listed devices, each mapped once."""
    environ = {CUDA_VARIABLE: "3,5"}
    assert seen(find_devices("auto", environ)) == ["3", "5"]
    (device,) = find_devices("1", environ)
    assert (device.index, device.label, device.environment) == (1, "cuda:5", {CUDA_VARIABLE: "5"})
    assert seen(find_devices([1, 0], environ)) == ["5", "3"]
    assert seen(find_devices(1, environ)) == ["3"]  # a number of them


def test_simulated_devices_are_mapped_the_same_way() -> None:
    assert seen(find_devices("sim:2", {}), SIM_VARIABLE) == ["0", "1"]
    assert seen(find_devices("sim:2", {SIM_VARIABLE: "3,5"}), SIM_VARIABLE) == ["3", "5"]
    with pytest.raises(ConfigError, match="there is no device 2: FRAMEWORK_SIM_DEVICES shows 2 of them"):
        find_devices("sim:3", {SIM_VARIABLE: "3,5"})


def test_a_place_on_the_processor_sees_no_gpu() -> None:
    devices = find_devices("none:3", {CUDA_VARIABLE: "0"})
    assert [device.label for device in devices] == ["none:0", "none:1", "none:2"]
    assert set(seen(devices)) == {""}


def test_gpus_are_counted_by_the_variable_then_by_device_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("nvidia0", "nvidia1", "nvidiactl", "nvidia-uvm"):
        (tmp_path / name).touch()
    monkeypatch.setenv("PATH", str(tmp_path))  # no nvidia-smi
    assert visible_gpus({}, tmp_path) == ["0", "1"]
    assert visible_gpus({CUDA_VARIABLE: "GPU-8a, 2,-1,3"}, tmp_path) == ["GPU-8a", "2"]
    assert visible_gpus({CUDA_VARIABLE: ""}, tmp_path) == []
    assert [device.kind for device in find_devices("auto", {CUDA_VARIABLE: ""}, tmp_path)] == ["none"]


@pytest.mark.parametrize(
    ("wanted", "message"),
    [("2", "there is no device 2: this process sees 2"), ("gpu", "names no devices"), ("sim:0", "no sensible number")],
)
def test_devices_that_are_not_there_are_refused(wanted: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        find_devices(wanted, {CUDA_VARIABLE: "0,1"})


def test_jobs_spread_over_devices_before_they_share_one() -> None:
    places = places_of(find_devices("sim:2", {}), 2)
    assert [place.device.label for place in places] == ["sim:0", "sim:1", "sim:0", "sim:1"]


def test_a_process_is_shown_its_simulated_devices_only(monkeypatch: pytest.MonkeyPatch) -> None:
    """SW-04: inside a job the one device is number 0, and there is no other."""
    monkeypatch.setenv(SIM_VARIABLE, "5")
    check_visible(0)
    with pytest.raises(ConfigError, match="device: there is no sim:1; the last one is sim:0"):
        check_visible(1)
