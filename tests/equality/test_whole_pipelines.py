"""Pipelines that nobody wrote a family for, called as a whole: every mode makes the same bytes as resident."""

import functools
from collections.abc import Callable, Iterator

import pytest
import tiny_pipelines
from equality_cases import Plan
from equality_rig import Rig, Subject, same
from torch import Tensor

from framework.families import WHOLE

pytestmark = pytest.mark.equality

NAMES = ("animatediff", "chroma", "cogvideox", "hunyuan_video", "lumina2", "pixart_alpha")
MODES = ("layerwise-offload", "component-offload")
DEFAULT = {("cogvideox", MODES[0])}


def cases() -> Iterator[object]:
    for name in NAMES:
        for mode in MODES:
            marks = () if (name, mode) in DEFAULT else (pytest.mark.slow,)
            yield pytest.param(name, mode, marks=marks, id=f"{name}-{mode}")


UNCALLED = {"animatediff": {"motion_adapter"}}
"""Its weights are in the denoiser, so that nothing asks for it."""


def run(subject: Subject, mode: str) -> tuple[list[Tensor], set[str], set[str]]:
    """Pictures of the subject's first two requests, the components that travelled, and those that could."""
    rig = Rig(subject, Plan(mode))
    try:
        outcome = rig.run(subject.requests[:2])
        assert not rig.world.races
        return outcome.frames, set(outcome.moved_bytes), rig.travelling()
    finally:
        rig.close()


@pytest.fixture(scope="module")
def resident(subjects: Callable[[str], Subject]) -> Callable[[str], list[Tensor]]:
    return functools.cache(lambda name: run(subjects(name), "resident")[0])


def test_every_class_that_the_page_calls_tested_is_here() -> None:
    assert {type(tiny_pipelines.build(name)).__name__ for name in NAMES} == set(WHOLE)


@pytest.mark.parametrize(("name", "mode"), list(cases()))
def test_a_whole_pipeline_in_every_mode_equals_resident(
    name: str, mode: str, subjects: Callable[[str], Subject], resident: Callable[[str], list[Tensor]]
) -> None:
    frames, moved, travelling = run(subjects(name), mode)
    assert same(frames, resident(name))
    assert moved == travelling - UNCALLED.get(name, set())
