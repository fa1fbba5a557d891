"""A fresh simulated machine for every test that asks for one."""

import pytest

from framework.platforms.sim.backend import install
from framework.platforms.sim.platform import SimPlatform
from framework.platforms.sim.testing import sim as sim
from framework.platforms.sim.world import World


@pytest.fixture(autouse=True)
def _one_thread(one_thread: None) -> None:
    """Tiny tensors on one thread."""


@pytest.fixture(autouse=True, scope="session")
def _installed() -> None:
    """torch knows the simulated device, whichever file is first."""
    install()


@pytest.fixture
def platform(sim: World) -> SimPlatform:
    """The first device of the fresh machine."""
    return SimPlatform()
