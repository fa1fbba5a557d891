"""What a plan would take next with less memory: it holds less, the cheapest is first, and no plan has none."""

from dataclasses import replace

import plan_cases as cases
import pytest

from framework.planning.choose import select
from framework.planning.machine import Machine
from framework.planning.next_best import next_best
from framework.planning.plan import Plan
from framework.spec import NumericsSpec, Placement, RequestSpec


@pytest.mark.parametrize("card", ["rtx_3060_12gb", "h100"])
def test_what_comes_next_holds_less_and_the_cheapest_is_first(card: str) -> None:
    problem = cases.wan(card)
    selection = select(problem)
    plan = Plan(
        machine=Machine(problem.hardware),
        problem=problem,
        request=RequestSpec(prompt="a"),
        choices=selection.choices,
        forecast=selection.forecast,
        numerics=NumericsSpec(),
        selection=selection,
    )
    placements = {name: Placement(component=name, group=None, mode="auto") for name in selection.choices}
    found = next_best(plan, placements)
    assert found
    assert all(one.used_bytes >= 0 <= one.idle_bytes and one.used_bytes + one.idle_bytes > 0 for one in found)
    assert [one.seconds for one in found] == sorted(one.seconds for one in found)
    assert {one.placement.mode for one in found} <= {"component-offload", "layerwise-offload", "resident"}
    planned = {name: choice.mode for name, choice in selection.choices.items()}
    assert any(one.placement.mode != planned[one.placement.component] for one in found)
    assert next_best(replace(plan, selection=None), placements) == ()
