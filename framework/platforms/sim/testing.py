"""The pytest fixture `sim`: a fresh simulated machine that must end without races and leaks. Imports torch.

Load it with `from framework.platforms.sim.testing import sim` in a conftest.
"""

import gc
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from framework.platforms.sim.backend import install
from framework.platforms.sim.errors import SimRace
from framework.platforms.sim.world import World, start


@pytest.fixture
def sim() -> Iterator[World]:
    """Yield a fresh `World` that is the current machine; a race or a leak fails the test."""
    install()
    world = start(World())
    yield world
    assert_idle(world)


def assert_idle(world: World) -> None:
    """Assert that `world` saw no race and that its devices and its pinned pool hold nothing."""
    if any(device.ledger.live_bytes for device in world.devices) or world.pinned.live_bytes:
        gc.collect()  # slow, and what is left may only be waiting in a cycle
    races = world.forget_races()
    assert not races, f"{len(races)} races, the first: {races[0]}"
    for device in world.devices:
        assert device.ledger.live_bytes == 0, f"{device.name} still holds {device.ledger.live_bytes} bytes"
    assert world.pinned.live_bytes == 0, f"{world.pinned.live_bytes} pinned bytes are still held"


@contextmanager
def planted_race(world: World, match: str) -> Iterator[None]:
    """Expect a race whose text matches `match`, raised inside the block or found by a destructor at its end."""
    with pytest.raises(SimRace, match=match):  # noqa: PT012  (the block of the caller is the statement)
        yield
        gc.collect()
        world.check()
    world.forget_races()
