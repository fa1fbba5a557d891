"""Fixtures of the plugin tests: registries as they were, and a simulated machine."""

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from framework.platforms.sim.testing import sim
from framework.registry import STAGES, STRATEGIES

__all__ = ["sim"]

PLUGIN = Path(__file__).parents[2] / "examples" / "plugin"


@pytest.fixture(autouse=True)
def _registries(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """What a test registers and imports is forgotten with it."""
    for registry in (STAGES, STRATEGIES):
        for table in ("_lazy", "_shown", "_loaded"):
            monkeypatch.setattr(registry, table, dict(getattr(registry, table)))
    before = set(sys.modules)
    yield
    for name in set(sys.modules) - before:
        if name.partition(".")[0] in ("framework_fade", "fade", "request_resident"):
            del sys.modules[name]


@pytest.fixture
def plugin_path(monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of the example plugin, on the Python path."""
    monkeypatch.syspath_prepend(str(PLUGIN))
    return PLUGIN
