"""A fresh simulated machine, and no gradients."""

from collections.abc import Iterator

import pytest
import torch

from framework.platforms.sim.testing import sim as sim


@pytest.fixture(autouse=True)
def _no_grad(one_thread: None) -> Iterator[None]:
    with torch.no_grad():
        yield
