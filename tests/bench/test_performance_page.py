"""docs/performance.md is what its generator makes of the kept results."""

import re
from pathlib import Path

import pytest

from bench.catalogue import BENCHES
from bench.goals import goals
from bench.performance import PAGE, main, page
from bench.results import FOLDER, read

KEPT = sorted(FOLDER.glob("*.json"))


def test_the_page_is_up_to_date() -> None:
    assert main(["--check"]) == 0, "run: python -m bench.performance"


@pytest.mark.parametrize("path", KEPT, ids=lambda path: path.stem)
def test_a_kept_result_has_its_page_and_says_command_and_machine(path: Path) -> None:
    result = read(path)
    assert result.name in BENCHES
    assert path.with_suffix(".md").read_text(encoding="utf-8") == result.markdown()
    assert result.machine["versions"]["torch"]
    assert result.command in PAGE.read_text(encoding="utf-8")


def test_a_rehearsal_is_never_kept() -> None:
    assert not any(read(path).found["simulated"] for path in KEPT if path.stem == "gpu")


def test_simulated_figures_are_called_so() -> None:
    sections = re.split(r"^## ", page(), flags=re.MULTILINE)
    for name, bench in BENCHES.items():
        own = [section for section in sections if section.startswith(bench.question)]
        if bench.simulated and bench.kept and own:
            assert "Simulated:" in own[0], name


def test_a_goal_that_is_not_met_comes_first_with_its_figure(tmp_path: Path) -> None:
    found = {"share": 0.5, "sweep_s": 1.0, "separate_s": 2.0, "runs": 1}
    assert goals("sweep", found) == [("a sweep takes at most 0.35 of separate runs", False, "0.50")]
    assert goals("overhead", {}) == []
