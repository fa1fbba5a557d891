"""hardware=auto: cards are read from what tools print, and matched to the shipped profile by name."""

from pathlib import Path

import pytest

from framework.errors import ConfigError
from framework.memory.host_budget import HostMemory
from framework.planning import machine
from framework.planning.cards import Card, read_cards
from framework.planning.machine import machine_of, resolve_hardware
from framework.platforms.hardware import GIB, load_hardware

HOST = HostMemory(48 * GIB, 40 * GIB)
SMI = """0, GPU-aaaa, NVIDIA GeForce RTX 4090, 24564, 812, 4, 16
1, GPU-bbbb, NVIDIA GeForce RTX 3060, 12288, 3, 3, [N/A]
"""


def card(name: str, memory_gib: float, **changes: object) -> Card:
    return Card(**{"vendor": "nvidia", "name": name, "memory_bytes": int(memory_gib * GIB), **changes})


def smi(command: object) -> str:
    return SMI


@pytest.mark.parametrize(
    ("name", "memory_gib", "profile"),
    [
        ("NVIDIA GeForce RTX 3060", 12, "rtx_3060_12gb"),
        ("NVIDIA GeForce RTX 4060 Ti", 16, "rtx_4060_ti_16gb"),
        ("NVIDIA GeForce RTX 4060", 8, "rtx_4060_8gb"),
        ("NVIDIA GeForce RTX 4060 Laptop GPU", 8, "laptop_rtx_4060_8gb"),
        ("NVIDIA GeForce RTX 4090 Laptop GPU", 16, "laptop_rtx_4090_16gb"),
        ("NVIDIA GeForce RTX 4090", 24, "rtx_4090"),
        ("NVIDIA GeForce RTX 5090", 31.8, "rtx_5090"),
        ("NVIDIA A100-SXM4-80GB", 80, "a100_80gb"),
        ("NVIDIA A100-PCIE-40GB", 40, "a100_40gb"),
        ("NVIDIA H100 80GB HBM3", 79.6, "h100"),
        ("NVIDIA H200", 140.4, "h200"),
        ("NVIDIA A10G", 22.5, "a10g"),
        ("NVIDIA L4", 22.5, "l4"),
        ("NVIDIA L40S", 44.9, "l40s"),
        ("NVIDIA B200", 179.1, "b200"),
    ],
)
def test_a_card_gets_the_profile_of_its_name(name: str, memory_gib: float, profile: str) -> None:
    found = machine_of(card(name, memory_gib), HOST)
    assert found.profile.name == profile
    assert found.notes == ()
    assert found.profile.memory_gib == memory_gib
    assert found.profile.host_ram_gib == 48


def test_other_vendors_are_matched_too() -> None:
    assert machine_of(card("Radeon RX 7900 XTX", 24, vendor="amd"), HOST).profile.name == "rx_7900_xtx"
    apple = machine_of(card("Apple M4 Max", 48, vendor="apple", unified=True), HOST).profile
    assert (apple.name, apple.unified) == ("apple_m4_max_64gb", True)


def test_an_unknown_card_takes_the_closest_profile_and_says_so() -> None:
    found = machine_of(card("NVIDIA GeForce RTX 4080 SUPER", 16), HOST)
    assert found.profile.name == "rtx_4080_16gb"
    assert "no profile of 'NVIDIA GeForce RTX 4080 SUPER' is shipped" in found.notes[0]
    other = machine_of(card("NVIDIA Quadro GV100", 32), HOST)
    assert other.profile.memory_gib == 32
    assert "are assumed" in other.notes[0]


def test_a_slow_slot_slows_the_copies_and_is_named() -> None:
    found = machine_of(card("NVIDIA GeForce RTX 4090", 24, link_generation=3, link_width=8), HOST)
    assert found.profile.h2d_pinned_gbps == found.profile.d2h_gbps == pytest.approx(6.15, abs=0.01)
    assert found.profile.h2d_pageable_gbps <= found.profile.h2d_pinned_gbps
    assert found.notes == ("the card's link is PCIe 3.0 x8: copies at 6.1 GB/s instead of 25",)
    full = machine_of(card("NVIDIA GeForce RTX 4090", 24, link_generation=4, link_width=16), HOST)
    assert full.profile.h2d_pinned_gbps == load_hardware("rtx_4090").h2d_pinned_gbps


def test_what_others_hold_on_the_card_is_reserved() -> None:
    found = machine_of(card("NVIDIA GeForce RTX 4090", 24, used_bytes=6 * GIB), HOST)
    assert found.profile.reserve_gib == 6.5
    assert found.notes == ("the card is busy: 6.0 of 24 GiB are taken by others",)


def test_cards_are_read_as_nvidia_smi_prints_them() -> None:
    first, second = read_cards(smi)
    assert (first.name, first.memory_bytes, first.used_bytes) == ("NVIDIA GeForce RTX 4090", 24564 * 2**20, 812 * 2**20)
    assert (first.link_generation, first.link_width) == (4, 16)
    assert (second.link_generation, second.link_width) == (3, None)


def test_cards_are_counted_as_cuda_shows_them() -> None:
    assert [found.name[-4:] for found in read_cards(smi, visible="1,0")] == ["3060", "4090"]
    assert [found.name[-4:] for found in read_cards(smi, visible="GPU-b")] == ["3060"]
    assert [found.name[-4:] for found in read_cards(smi, visible="0,7,1")] == ["4090"]


def test_an_amd_card_is_read_from_sys(tmp_path: Path) -> None:
    folder = tmp_path / "card1" / "device"
    folder.mkdir(parents=True)
    values = {
        "vendor": "0x1002",
        "device": "0x744c",
        "mem_info_vram_total": str(24 * GIB),
        "mem_info_vram_used": str(GIB),
        "max_link_speed": "16.0 GT/s PCIe",
        "max_link_width": "16",
    }
    for name, value in values.items():
        (folder / name).write_text(f"{value}\n")
    (found,) = read_cards(lambda command: None, tmp_path)
    assert (found.name, found.memory_bytes, found.link_generation) == ("Radeon RX 7900 XTX", 24 * GIB, 4)


def test_without_a_card_the_processor_is_the_machine(tmp_path: Path) -> None:
    assert read_cards(lambda command: None, tmp_path) == ()
    found = machine_of(None, HOST)
    assert (found.profile.name, found.profile.memory_gib, found.profile.unified) == ("cpu", 48, True)


def test_hardware_means_what_the_device_says(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine, "read_cards", lambda: read_cards(smi, visible="0,1"))
    monkeypatch.setattr(machine, "read_host_memory", lambda: HOST)
    auto = {"name": "auto", "host_ram_gib": None}
    assert resolve_hardware(auto, "sim:1").profile == load_hardware("rtx_4090")
    assert resolve_hardware(auto, "cuda:1").profile.name == "rtx_3060_12gb"
    assert resolve_hardware(None, "cpu").profile.name == "cpu"
    assert resolve_hardware({**auto, "host_ram_gib": 16}, "cuda").profile.host_ram_gib == 16
    with pytest.raises(ConfigError, match=r"there is no cuda:2: this machine has 2"):
        resolve_hardware(auto, "cuda:2")
