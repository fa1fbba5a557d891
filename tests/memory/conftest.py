"""Fixtures of the memory tests: a simulated machine and what components on it share."""

from collections.abc import Callable, Iterator

import memory_builders
import pytest
import torch

from framework.memory.resources import Resources
from framework.platforms.sim.testing import sim

__all__ = ["sim"]


@pytest.fixture(autouse=True, scope="session")
def _libraries(one_thread: None) -> None:
    """Many tests on `sim` end with a search for cycles: have what it leaves out there before the first."""
    import torch._dynamo  # a first hook imports it

    assert torch._dynamo


@pytest.fixture(autouse=True)
def _no_grad() -> Iterator[None]:
    with torch.no_grad():
        yield


@pytest.fixture
def make_resources(sim: object) -> Callable[..., Resources]:
    """Build the shared parts on the simulated device; options as `memory_builders.resources`."""
    return memory_builders.resources
