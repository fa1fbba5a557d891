"""What every test shares: one thread, no connections, and tiny pipelines built once. Imports torch in fixtures only."""

import gc
import os
import sys

os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
os.environ.setdefault("OMP_NUM_THREADS", "1")

from collections.abc import Callable, Generator, Iterator
from pathlib import Path
from typing import Any

import pytest

from framework.registry import FAMILIES, STAGES, STRATEGIES

REGISTRIES = (STAGES, FAMILIES, STRATEGIES)


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report(collector: pytest.Collector) -> Generator[None, Any, Any]:
    """Take back what importing a test module registers; `own_registrations` gives it to that module's tests only."""
    before = [set(registry._shown) for registry in REGISTRIES]
    report = yield
    collector.own = [
        {key: registry._loaded.pop(key) for key in set(registry._shown) - names if key in registry._loaded}
        for registry, names in zip(REGISTRIES, before, strict=True)
    ]
    for registry, own in zip(REGISTRIES, collector.own, strict=True):
        for key in own:
            del registry._shown[key]
    return report


@pytest.fixture(autouse=True, scope="module")
def own_registrations(request: pytest.FixtureRequest) -> Iterator[None]:
    """A stage or strategy of one test module is no choice in another's messages."""
    with pytest.MonkeyPatch.context() as patch:
        for registry, own in zip(REGISTRIES, request.node.own, strict=True):
            for key, target in own.items():
                patch.setitem(registry._loaded, key, target)
                patch.setitem(registry._shown, key, key)
        yield


@pytest.fixture(autouse=True, scope="session")
def own_cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Nothing is read from the user's cache, nor kept there."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("FRAMEWORK_CACHE", str(tmp_path_factory.mktemp("cache")))
        yield


@pytest.fixture(autouse=True)
def own_machine() -> Iterator[None]:
    """A simulated machine that a test starts, with little memory or a planted fault, ends with the test."""
    worlds = getattr(sys.modules.get("framework.platforms.sim.world"), "_worlds", None)
    before = list(worlds or ())
    yield
    worlds = getattr(sys.modules.get("framework.platforms.sim.world"), "_worlds", None)
    if worlds is not None and worlds != before:
        worlds[:] = before


@pytest.fixture(autouse=True, scope="module")
def quick_collections() -> None:
    """Searches for cycles, of which many tests need one, leave out the libraries that were imported since the last.

    Between modules, where nobody holds a model; one that a cycle still holds on a simulated device goes now.
    """
    if len(sys.modules) > _num_modules[0] + 50 or _is_memory_left():
        gc.unfreeze()
        gc.collect()
        gc.freeze()
        _num_modules[0] = len(sys.modules)


def _is_memory_left() -> bool:
    worlds = getattr(sys.modules.get("framework.platforms.sim.world"), "_worlds", None) or ()
    return any(device.ledger.live_bytes for world in worlds for device in world.devices)


_num_modules = [0]


@pytest.fixture(scope="session")
def one_thread() -> None:
    """Tiny models are many times slower on two threads."""
    import torch

    torch.set_num_threads(1)


@pytest.fixture(scope="session")
def tiny_folder(tmp_path_factory: pytest.TempPathFactory, one_thread: None) -> Callable[[str], Path]:
    """Return the folder of a tiny pipeline, built on first use; see `tiny_pipelines.BUILDERS` for the names."""
    import tiny_pipelines

    folders: dict[str, Path] = {}

    def build(name: str) -> Path:
        if name not in folders:
            folders[name] = tiny_pipelines.save(name, tmp_path_factory.mktemp("tiny") / name)
        return folders[name]

    return build


@pytest.fixture(scope="session")
def plain_pipeline(tiny_folder: Callable[[str], Path]) -> Callable[[str], Any]:
    """Return diffusers' own pipeline for a tiny name or `digits`, loaded once, weights aligned as ours are."""
    import spec_builders

    loaded: dict[str, Any] = {}

    def load(name: str) -> Any:
        if name not in loaded:
            loaded[name] = spec_builders.plain(spec_builders.model_folder(name, tiny_folder))
        return loaded[name]

    return load


@pytest.fixture(scope="session")
def loaded_stores(tiny_folder: Callable[[str], Path]) -> Callable[[str], Any]:
    """Return (pipeline spec, graph, store) for a tiny name or `digits`, loaded once."""
    import spec_builders

    loaded: dict[str, Any] = {}

    def load(name: str) -> Any:
        if name not in loaded:
            loaded[name] = spec_builders.load(spec_builders.pipeline(name, tiny_folder))
        return loaded[name]

    return load
