"""Every placement makes the same bytes as everything resident, and leaves the machine as it found it.

The default run takes a pairwise selection. The full product is `test_the_full_product`: it runs with `-m slow`, goes on
where it stopped, and splits into shards, see its docstring.
"""

import json
import os
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from equality_cases import PIPELINES, Plan, full_product, pairwise, selection
from equality_rig import Rig, Subject, same
from torch import Tensor

pytestmark = pytest.mark.equality

Subjects = Callable[[str], Subject]
Reference = Callable[[str], list[Tensor]]
LAYERWISE, WHOLE = "layerwise-offload", "component-offload"


def check(name: str, plan: Plan, subjects: Subjects, resident_frames: Reference) -> None:
    """Run the three requests under `plan` and compare everything that has to agree."""
    expected = resident_frames(name)
    rig = Rig(subjects(name), plan)
    try:
        outcome = rig.run()
        assert same(outcome.frames, expected), "another picture than with everything resident"
        assert not rig.world.races
        wanted = {"scarce": {"pinned", "pageable"}}.get(plan.tier, {plan.tier})
        assert wanted <= outcome.tiers, f"no weights are {plan.tier}"
        assert set(outcome.moved_bytes) == rig.travelling(), "an offloaded component moved nothing"
        assert outcome.counted_bytes == outcome.moved_bytes, "the record counts other bytes than the log of moves"
        assert len(set(outcome.idle_bytes)) == 1, "a request left more weights on the device than the one before"
        assert outcome.num_formulas >= 2 * len(rig.placed.components())
    finally:
        rig.close()


@pytest.mark.parametrize(("name", "plan"), selection(), ids=lambda value: str(value))
def test_every_plan_equals_resident(name: str, plan: Plan, subjects: Subjects, resident_frames: Reference) -> None:
    check(name, plan, subjects, resident_frames)


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
    [("wan22", LAYERWISE), ("flux", LAYERWISE), ("sdxl", LAYERWISE), ("flux", WHOLE), ("sdxl", WHOLE)],
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


@pytest.mark.slow
def test_the_full_product(subjects: Subjects, resident_frames: Reference) -> None:
    """`EQUALITY_LOG=file` keeps one line for each case that passed and skips those it has; `EQUALITY_SHARD=2/8` runs
    every eighth case, beginning with the second; `EQUALITY_SECONDS=600` stops after that time."""
    log = Path(os.environ["EQUALITY_LOG"]) if "EQUALITY_LOG" in os.environ else None
    done = {json.loads(line)["case"] for line in log.read_text().splitlines()} if log and log.exists() else set()
    number, _, count = os.environ.get("EQUALITY_SHARD", "1/1").partition("/")
    until = time.monotonic() + float(os.environ.get("EQUALITY_SECONDS", "inf"))
    cases = [(name, plan) for name in PIPELINES for plan in full_product()][int(number) - 1 :: int(count)]
    for name, plan in cases:
        case = f"{name}-{plan}"
        if case in done:
            continue
        if time.monotonic() > until:
            pytest.skip("the time is up; run it again to go on")
        started = time.monotonic()
        check(name, plan, subjects, resident_frames)
        if log is not None:
            with log.open("a") as file:
                file.write(json.dumps({"case": case, "seconds": round(time.monotonic() - started, 2)}) + "\n")
