"""Fixtures of the memory tests: a simulated machine and what components on it share."""

import gc
from collections.abc import Callable, Iterator

import memory_builders
import pytest
import torch

from framework.memory.resources import Resources
from framework.platforms.sim.testing import sim

__all__ = ["sim"]


@pytest.fixture(autouse=True, scope="session")
def _quick_collections(one_thread: None) -> None:
    """Every test on `sim` ends with a collection; what the imports made need not be looked at each time."""
    import torch._dynamo  # a first hook imports it

    assert torch._dynamo
    gc.collect()
    gc.freeze()


@pytest.fixture(autouse=True)
def _no_grad() -> Iterator[None]:
    with torch.no_grad():
        yield


@pytest.fixture
def make_resources(sim: object) -> Callable[..., Resources]:
    """Build the shared parts on the simulated device; options as `memory_builders.resources`."""
    return memory_builders.resources
