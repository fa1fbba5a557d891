"""From the text after `device=` to a platform, and what the synchronous ones promise."""

import subprocess
import sys

import pytest
import torch

from framework.errors import ConfigError
from framework.platforms import PLATFORMS, Platform, make_platform, register_platform
from framework.platforms.hardware import load_hardware
from framework.platforms.sim import World
from framework.platforms.sim.platform import SimPlatform


def test_naming_the_platforms_imports_no_torch() -> None:
    code = "import sys, framework.platforms as p; print(p.PLATFORMS.names(), 'torch' in sys.modules)"
    shown = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert shown.strip() == "('cpu', 'cuda', 'mps', 'sim') False"


def test_auto_takes_the_processor_where_there_is_nothing_better() -> None:
    if torch.cuda.is_available() or torch.backends.mps.is_available():
        pytest.skip("this machine has an accelerator")
    assert make_platform("auto").kind == "cpu"


@pytest.mark.parametrize("device", ["cpu", "sim", "sim:2"])
def test_every_platform_keeps_the_protocol(device: str, sim: World) -> None:
    platform = make_platform(device)
    assert isinstance(platform, Platform)
    assert platform.device == torch.device("sim:0" if device == "sim" else device)


@pytest.mark.parametrize(
    ("device", "text"),
    [
        ("cuda:x", "'cuda:x' is not a device"),
        ("cpu:1", "there is no cpu:1"),
        ("gpu", "unknown platform 'gpu'"),
        ("simm", "did you mean 'sim'?"),
        ("sim:", "'sim:' is not a device"),
    ],
)
def test_a_wrong_device_is_refused_by_name(device: str, text: str) -> None:
    with pytest.raises(ConfigError) as caught:
        make_platform(device)
    assert text in str(caught.value)


def test_an_absent_accelerator_is_refused_with_the_way_out() -> None:
    if torch.cuda.is_available():
        pytest.skip("this machine has one")
    with pytest.raises(ConfigError, match="no CUDA device; write device=cpu"):
        make_platform("cuda")


def test_a_platform_without_the_methods_cannot_be_registered() -> None:
    with pytest.raises(TypeError, match="lacks kind, copy_async"):
        register_platform("half")(object)
    assert "half" not in PLATFORMS


def test_the_processor_copies_at_once_and_pins_nothing() -> None:
    platform = make_platform("cpu")
    source = torch.arange(4.0)
    target = platform.reserve(16).view(torch.float32)
    stream = platform.make_stream("copy")
    platform.copy_async(target, source, stream)
    platform.wait_event(platform.current_stream(), platform.record_event(stream))
    assert torch.equal(target, source)
    assert platform.allocate_pinned(8) is None
    assert platform.unified
    assert not platform.overlaps


def test_the_processor_gives_the_figures_of_this_process() -> None:
    figures = make_platform("cpu").memory()
    assert 0 < figures.allocated_bytes <= figures.peak_bytes < figures.total_bytes


def test_a_seeded_generator_of_the_processor_draws_torch_own_numbers() -> None:
    drawn = torch.randn(3, generator=make_platform("cpu").make_generator(7))
    assert torch.equal(drawn, torch.randn(3, generator=torch.Generator().manual_seed(7)))


def test_sim_imitates_the_hardware_it_is_given(sim: World) -> None:
    import dataclasses

    profile = load_hardware("rtx_3060_12gb")
    platform = make_platform("sim", dataclasses.asdict(profile))
    assert isinstance(platform, SimPlatform)
    assert platform.world.profile == profile
    assert platform.memory().total_bytes == 12 * 1024**3
    assert platform.memory().free_bytes == profile.capacity_bytes
    second = make_platform("sim:1", dataclasses.asdict(profile))
    assert isinstance(second, SimPlatform)
    assert second.world is platform.world


def test_sim_without_chosen_hardware_is_the_4090(sim: World) -> None:
    platform = make_platform("sim", {"name": "auto"})
    assert isinstance(platform, SimPlatform)
    assert platform.world.profile.name == "rtx_4090"
