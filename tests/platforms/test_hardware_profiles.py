"""The shipped hardware files and how they are read."""

import dataclasses

import pytest

from framework.errors import ConfigError
from framework.paths import CONF
from framework.platforms.hardware import GIB, HardwareProfile, load_hardware

NAMES = sorted(path.stem for path in (CONF / "hardware").glob("*.yaml") if path.stem != "auto")


def test_the_three_first_profiles_are_shipped() -> None:
    assert {"rtx_3060_12gb", "rtx_4090", "h100"} <= set(NAMES)


@pytest.mark.parametrize("name", NAMES)
def test_every_profile_has_sane_figures(name: str) -> None:
    profile = load_hardware(name)
    assert profile.name == name
    assert profile.source
    assert 0 < profile.reserve_gib < profile.memory_gib
    assert profile.capacity_bytes < profile.memory_gib * GIB
    assert profile.h2d_pageable_gbps <= profile.h2d_pinned_gbps < profile.memory_gbps
    assert profile.fp32_tflops <= profile.bf16_tflops <= (profile.fp8_tflops or profile.bf16_tflops)
    assert all(0 < share <= 1 for share in dataclasses.astuple(profile.efficiency))
    assert 0 <= profile.overlap <= 1


def test_an_unknown_profile_names_the_closest() -> None:
    with pytest.raises(ConfigError, match=r"there is no profile 'rtx_4900'; did you mean 'rtx_4090'\?"):
        load_hardware("rtx_4900")


def test_a_wrong_or_missing_key_is_named() -> None:
    values = dataclasses.asdict(load_hardware("h100"))
    with pytest.raises(ConfigError, match=r"memory_gb: unknown key; did you mean 'memory_gib'\?"):
        HardwareProfile.from_mapping({**values, "memory_gb": 1})
    del values["vendor"]
    with pytest.raises(ConfigError, match=r"hardware\.vendor: is missing"):
        HardwareProfile.from_mapping(values)
