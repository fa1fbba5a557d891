"""Tiny pipelines as subjects, and the pictures of everything resident: made once for each pipeline."""

from collections.abc import Callable
from pathlib import Path

import equality_rig
import pytest
from equality_cases import Plan
from equality_rig import Rig, Subject
from torch import Tensor


@pytest.fixture(scope="package", autouse=True)
def _libraries(one_thread: None) -> None:
    """Every case ends with a search for cycles: have what it leaves out there before the first."""
    import diffusers  # noqa: F401
    import transformers  # noqa: F401


@pytest.fixture(scope="session")
def subjects(tiny_folder: Callable[[str], Path], tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Subject]:
    import tiny_pipelines

    file = tmp_path_factory.mktemp("pictures") / "start.png"
    known: dict[str, Subject] = {}

    def picture() -> Path:
        tiny_pipelines.start_picture().save(file)
        return file

    def make(name: str) -> Subject:
        if name not in known:
            known[name] = equality_rig.subject(name, tiny_folder, picture)
        return known[name]

    return make


@pytest.fixture(scope="session")
def resident_frames(subjects: Callable[[str], Subject]) -> Callable[[str], list[Tensor]]:
    """Return what a pipeline makes of its three requests with everything resident on the simulated accelerator."""
    known: dict[str, list[Tensor]] = {}

    def make(name: str) -> list[Tensor]:
        if name not in known:
            rig = Rig(subjects(name), Plan("resident"))
            known[name] = rig.run().frames
            assert not rig.outcome.moved_bytes, "resident weights stay where they are"
            rig.close()
        return known[name]

    return make
