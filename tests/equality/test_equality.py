"""Every placement makes the same bytes as everything resident, and leaves the machine as it found it.

A pairwise selection of the plans; the full product is in `test_full_product`.
"""

from collections.abc import Callable

import pytest
from equality_cases import PIPELINES, Plan, pairwise, selection
from equality_rig import Rig, Subject, check_case, same
from torch import Tensor

pytestmark = pytest.mark.equality

Subjects = Callable[[str], Subject]
Reference = Callable[[str], list[Tensor]]
LAYERWISE, WHOLE = "layerwise-offload", "component-offload"
MORE = (("flux", LAYERWISE), ("sdxl", LAYERWISE), ("flux", WHOLE))


@pytest.mark.parametrize(("name", "plan"), selection(), ids=lambda value: str(value))
def test_every_plan_equals_resident(name: str, plan: Plan, subjects: Subjects, resident_frames: Reference) -> None:
    expected = resident_frames(name)
    rig = Rig(subjects(name), plan)
    try:
        check_case(rig, expected)
    finally:
        rig.close()


def test_the_selection_holds_every_pair_of_values_and_every_pipeline() -> None:
    from itertools import combinations, product

    from equality_cases import FACTORS, NAMES

    plans = pairwise()
    for (i, left), (j, right) in combinations(enumerate(FACTORS), 2):
        for pair in product(left, right):
            assert any((getattr(plan, NAMES[i]), getattr(plan, NAMES[j])) == pair for plan in plans), pair
    assert {name for name, _ in selection()} == set(PIPELINES)


@pytest.mark.parametrize(
    ("name", "mode"),
    [("wan22", LAYERWISE), ("sdxl", WHOLE), *(pytest.param(*case, marks=pytest.mark.slow) for case in MORE)],
)
def test_it_runs_in_what_a_free_run_needs_and_in_no_granule_less(name: str, mode: str, subjects: Subjects) -> None:
    plan, one = Plan(mode), subjects(name).requests[:1]
    free = Rig(subjects(name), plan)
    frames, peak = free.run(one).frames, free.outcome.peak_bytes
    free.close()
    tight = Rig(subjects(name), plan, capacity_bytes=peak)
    assert same(tight.run(one).frames, frames)
    tight.close()
    short = Rig(subjects(name), plan, capacity_bytes=peak - 512)
    with pytest.raises(Exception, match="out of memory"):
        short.run(one)
    short.close()
