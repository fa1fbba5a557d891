"""Families, by config and stages, make the same bytes in every mode on a simulated card (CF-08: KL VAEs among them).

Weights that are away raise when they are read, so this also proves that no stage uses what it did not declare.
"""

from collections.abc import Callable, Iterator
from pathlib import Path

import image_builders
import pytest
from equality_cases import Plan
from equality_rig import Rig, Subject, same
from family_builders import CASES, OTHERS
from image_builders import family_pipeline, family_request
from torch import Tensor

from framework.graph import build_graph

pytestmark = pytest.mark.equality

MODES = ("layerwise-offload", "component-offload")
DEFAULT = {("sdxl_inpaint", MODES[0])}
NAMES = ("flux", "flux_kontext", "flux2_klein_edit", "qwen_image", "qwen_image_edit", "z_image", "sd3", *OTHERS)


def cases() -> Iterator[object]:
    for name in NAMES:
        for mode in MODES:
            marks = () if (name, mode) in DEFAULT else (pytest.mark.slow,)
            yield pytest.param(name, mode, marks=marks, id=f"{name}-{mode}")


@pytest.fixture(scope="module")
def subject_of(
    tiny_folder: Callable[[str], Path], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Callable[[str], Subject]]:
    import tiny_pipelines

    file = tmp_path_factory.mktemp("pictures") / "start.png"
    tiny_pipelines.start_picture().resize((96, 64)).save(file)

    def make(name: str) -> Subject:
        spec = family_pipeline(CASES[name], tiny_folder)
        return Subject(spec, build_graph(spec), (family_request(CASES[name], str(file)),))

    with pytest.MonkeyPatch.context() as patch:
        image_builders.small_areas(patch)
        # HunyuanVideo 1.5 has one projection of fixed width, which outweighs the layers of its twin
        patch.setattr("framework.memory.layers.MIN_COVERAGE", 0.01)
        yield make


@pytest.fixture(scope="module")
def resident(subject_of: Callable[[str], Subject]) -> Callable[[str], list[Tensor]]:
    known: dict[str, list[Tensor]] = {}

    def make(name: str) -> list[Tensor]:
        if name not in known:
            rig = Rig(subject_of(name), Plan("resident"))
            known[name] = rig.run().frames
            rig.close()
        return known[name]

    return make


@pytest.mark.parametrize(("name", "mode"), list(cases()))
def test_every_mode_equals_resident(
    name: str, mode: str, subject_of: Callable[[str], Subject], resident: Callable[[str], list[Tensor]]
) -> None:
    rig = Rig(subject_of(name), Plan(mode))
    try:
        outcome = rig.run()
        assert same(outcome.frames, resident(name))
        assert not rig.world.races
        assert set(outcome.moved_bytes) == set(rig.placed.components())
    finally:
        rig.close()
