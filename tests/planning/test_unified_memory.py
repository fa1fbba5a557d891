"""Where device and host are one memory nothing is moved, whatever would be as fast: the engine keeps all resident."""

from dataclasses import replace

import plan_cases as cases
import pytest

from framework.planning.choose import select
from framework.planning.facts import Budgets
from framework.planning.plan import uniform_presets
from framework.planning.problem import RESIDENT, PlanProblem
from framework.planning.refusal import CannotFit


def one_memory() -> PlanProblem:
    problem = cases.flux("h100")
    one = replace(problem, hardware=replace(problem.hardware, unified=True))
    return replace(one, presets=uniform_presets(one))


def test_no_preset_that_moves_weights_is_taken() -> None:
    found = select(one_memory())
    assert {choice.mode for choice in found.choices.values()} == {RESIDENT}
    assert list(found.presets) == ["all resident"]


def test_what_is_larger_than_the_one_memory_is_refused_and_not_streamed() -> None:
    problem = one_memory()
    with pytest.raises(CannotFit):
        select(replace(problem, budgets=Budgets(device=20 * 10**9)))
