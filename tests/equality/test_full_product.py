"""The full product of pipelines and plans (`-m slow`): it goes on where it stopped, and splits into shards.

`EQUALITY_LOG=file` keeps one line for each case that passed and skips those it has; `EQUALITY_SHARD=2/8` runs every
eighth group of cases, beginning with the second; `EQUALITY_SECONDS=600` stops after that time. Afterwards
`python tests/equality/summarise_product.py LOG ...` writes `full_product.json` and `full_product.md`.
"""

import json
import os
import subprocess
import time
from collections.abc import Callable
from itertools import groupby
from pathlib import Path

import pytest
from equality_cases import PIPELINES, Plan, full_product
from equality_rig import Rig, Subject, check_case
from summarise_product import Case, count, mode_of, summarise
from torch import Tensor

pytestmark = pytest.mark.equality

HERE = Path(__file__).parent
Loaded = tuple[str, str, str]
"""What a group of cases shares: pipeline, mode and tier, hence how its weights are loaded."""


def loaded_as(case: tuple[str, Plan]) -> Loaded:
    return case[0], case[1].mode, case[1].tier


def groups() -> list[tuple[Loaded, list[Plan]]]:
    cases = sorted(((name, plan) for name in PIPELINES for plan in full_product()), key=loaded_as)
    return [(key, [plan for _, plan in group]) for key, group in groupby(cases, loaded_as)]


@pytest.mark.slow
def test_the_full_product(subjects: Callable[[str], Subject], resident_frames: Callable[[str], list[Tensor]]) -> None:
    log = Path(os.environ["EQUALITY_LOG"]) if "EQUALITY_LOG" in os.environ else None
    done = {json.loads(line)["case"] for line in log.read_text().splitlines()} if log and log.exists() else set()
    number, _, shards = os.environ.get("EQUALITY_SHARD", "1/1").partition("/")
    until = time.monotonic() + float(os.environ.get("EQUALITY_SECONDS", "inf"))
    commit = subprocess.run(["git", "rev-parse", "--short", "HEAD"], cwd=HERE, capture_output=True, text=True).stdout
    for (name, _, _), plans in groups()[int(number) - 1 :: int(shards)]:
        rig: Rig | None = None
        for plan in plans:
            if f"{name}-{plan}" in done:
                continue
            if time.monotonic() > until:
                pytest.skip("the time is up; run it again to go on")
            expected = resident_frames(name)  # before the rig: there is one simulated machine at a time
            started = time.monotonic()
            if rig is None:
                rig = Rig(subjects(name), plan)
            else:
                rig.change(plan)
            check_case(rig, expected)
            case = Case(f"{name}-{plan}", round(time.monotonic() - started, 2), commit.strip())
            if log is not None:
                with log.open("a") as file:
                    file.write(case.line())
        if rig is not None:
            rig.close()


def test_groups_hold_every_case_once() -> None:
    cases = [f"{key[0]}-{plan}" for key, plans in groups() for plan in plans]
    assert sorted(cases) == sorted(f"{name}-{plan}" for name in PIPELINES for plan in full_product())


def test_a_summary_is_made_of_a_complete_log_only(tmp_path: Path) -> None:
    cases = [Case(f"{name}-{plan}", 1.0, "abc") for name in PIPELINES for plan in full_product()]
    with pytest.raises(SystemExit, match="1 of 1640 cases are missing, the first: "):
        summarise(cases[1:], {"torch": "2"})
    found = summarise([*cases, cases[0]], {"torch": "2"})
    assert found["cases"] == len(cases)
    assert found["commits"] == {"abc": len(cases)}
    assert found["counts"]["wan22"] == {"component-offload": 4, "layerwise-offload": 160}


def test_the_committed_summary_holds_the_whole_product() -> None:
    file = HERE / "full_product.json"
    if not file.exists():
        pytest.skip("the full product has not been summed up")
    found = json.loads(file.read_text())
    assert found["counts"] == count(f"{name}-{plan}" for name in PIPELINES for plan in full_product())
    assert mode_of("flux-layerwise-offload-0-0-leading-pinned-use") == ("flux", "layerwise-offload")
