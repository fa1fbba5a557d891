"""Fixtures of the memory tests: a simulated machine and what components on it share."""

from collections.abc import Callable, Iterator

import memory_builders
import pytest
import torch

from framework.memory.layerwise import Resources
from framework.platforms.sim.testing import sim

__all__ = ["sim"]


@pytest.fixture(autouse=True)
def _no_grad() -> Iterator[None]:
    with torch.no_grad():
        yield


@pytest.fixture
def make_resources(sim: object) -> Callable[..., Resources]:
    """Build the shared parts on the simulated device; options as `memory_builders.resources`."""
    return memory_builders.resources
