"""Families of pictures over tiny folders, loaded once, and the picture that some start from."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest


@pytest.fixture(scope="session")
def picture(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A file of 96 x 64 pixels: no square, so that exchanged sides show."""
    import tiny_pipelines

    file = tmp_path_factory.mktemp("pictures") / "wide.png"
    tiny_pipelines.start_picture().resize((96, 64)).save(file)
    return str(file)


@pytest.fixture(scope="session")
def small_areas(one_thread: None) -> Iterator[None]:
    import image_builders

    with pytest.MonkeyPatch.context() as patch:
        image_builders.small_areas(patch)
        yield


@pytest.fixture(scope="session")
def loaded_families(tiny_folder: Callable[[str], Path], small_areas: None) -> Callable[[str], Any]:
    """Return (pipeline spec, graph, store) for a name of `image_builders.CASES`, loaded once for each folder."""
    import spec_builders
    from image_builders import CASES, family_pipeline

    known: dict[tuple[str, str], Any] = {}

    def load(name: str) -> Any:
        key = (CASES[name].tiny, CASES[name].config)
        if key not in known:
            known[key] = spec_builders.load(family_pipeline(CASES[name], tiny_folder))
        return known[key]

    return load
