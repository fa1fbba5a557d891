"""Axes and points to jobs."""

import pytest

from framework.errors import ConfigError
from framework.sweep.axes import axis_of_file
from framework.sweep.grid import Assignment, Grid


def words(grid: Grid) -> list[list[str]]:
    return [[own.word for own in job] for job in grid.jobs()]


AXES = (axis_of_file("seed", [1, 2], ""), axis_of_file("request.height", [32, 64], ""))


def test_every_combination_is_a_job_and_the_last_axis_turns_fastest() -> None:
    found = words(Grid(AXES))
    assert found == [[f"seed={seed}", f"request.height={height}"] for seed in (1, 2) for height in (32, 64)]


def test_excluded_combinations_and_points() -> None:
    point = (Assignment("seed", "seed=9", 9),)
    found = words(Grid(AXES, (point,), ({"seed": 1, "request.height": 64}, {"request.height": 32})))
    assert found == [["seed=2", "request.height=64"], ["seed=9"]]


def test_points_alone_make_no_grid() -> None:
    assert words(Grid((), ((Assignment("seed", "seed=9", 9),),))) == [["seed=9"]]
    assert words(Grid()) == [[]]  # nothing is swept: one job


@pytest.mark.parametrize(
    ("exclude", "message"),
    [
        ({"seeds": 1}, r"sweep.exclude\[0\].seeds: is no axis; did you mean 'seed'"),
        ({"seed": 3}, r"sweep.exclude\[0\].seed: '3' is no value of this axis; it has 1, 2"),
        ({"seed": True}, "'true' is no value of this axis"),
    ],
)
def test_an_entry_that_excludes_nothing_is_a_mistake(exclude: dict[str, object], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        Grid(AXES, (), (exclude,)).jobs()


def test_too_many_jobs_and_none_are_refused_before_they_are_listed() -> None:
    many = tuple(axis_of_file(f"request.k{number}", list(range(100)), "") for number in range(4))
    with pytest.raises(ConfigError, match="100000000 jobs; a sweep has at most 10000"):
        Grid(many).jobs()
    with pytest.raises(ConfigError, match="no job is left"):
        Grid(AXES[:1], (), ({"seed": 1}, {"seed": 2})).jobs()
