"""The knapsack of the choice against all combinations."""

from itertools import product
from math import inf
from random import Random

import pytest

import framework.planning.solve as solving
from framework.planning.solve import Item, solve, undominated


def drawn(seed: int) -> tuple[list[list[Item]], list[int]]:
    draw = Random(seed)
    rows = draw.randint(1, 4)
    groups = [
        [
            Item(round(draw.uniform(0, 9), 2), draw.randint(0, 3), tuple(draw.randint(0, 20) for _ in range(rows)))
            for _ in range(draw.randint(1, 6))
        ]
        for _ in range(draw.randint(1, 4))
    ]
    return groups, [draw.randint(5, 15) * len(groups) for _ in range(rows)]


@pytest.mark.parametrize("block", range(5))
def test_it_finds_the_least_of_all_combinations(block: int) -> None:
    for seed in range(block * 100, block * 100 + 100):
        groups, capacities = drawn(seed)
        fitting = [
            sum(item.seconds for item in one)
            for one in product(*groups)
            if all(sum(item.uses[row] for item in one) <= cap for row, cap in enumerate(capacities))
        ]
        found = solve([undominated(group) for group in groups], capacities)
        assert (found is None) == (not fitting), seed
        if found is not None:
            assert sum(item.seconds for item in found) == pytest.approx(min(fitting)), seed
            assert all(item in group for item, group in zip(found, groups, strict=True))


def test_what_is_not_faster_than_the_bound_is_not_found() -> None:
    groups = [[Item(2.0, 0, (1,))], [Item(3.0, 0, (1,))]]
    assert solve(groups, [2], below=6.0) is not None
    assert solve(groups, [2], below=5.0) is None


def test_among_equals_the_simpler_one_is_kept() -> None:
    plain, deep = Item(1.0, 0, (4,), "plain"), Item(1.0, 1, (4,), "deep")
    assert [item.tag for item in undominated([deep, plain])] == ["plain"]


def test_a_group_without_items_cannot_be_served() -> None:
    assert solve([[Item(1.0, 0, (1,))], []], [9]) is None


def test_many_groups_have_an_answer_before_long(monkeypatch: pytest.MonkeyPatch) -> None:
    """Dozens of groups have more near answers than anybody can look at: the best one found is taken."""
    monkeypatch.setattr(solving, "PATIENCE", 300)
    groups = [
        [Item(1.0 + g / 997, 0, (3 + g % 5,)), Item(1.3 + g / 991, 1, (2,)), Item(2.0, 2, (1,))] for g in range(40)
    ]
    search = solving._Search(groups, (101,), inf)
    found = search.run()
    assert search._patience < 0
    assert found is not None
    assert sum(item.uses[0] for item in found) <= 101
