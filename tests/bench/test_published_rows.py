"""The table of published figures: every second row is held out, all can be planned, and errors are told apart."""

import pytest
import shipped_works

from bench.plan_vs_published import CONFIGS, Row, compare, outliers, read_rows, run, summary
from bench.tables import plan_vs_published
from framework.compose import compose
from framework.compose.arguments import Flags

ROWS = read_rows()


def test_there_are_more_than_thirty_rows_and_every_second_one_is_held_out() -> None:
    assert len(ROWS) >= 30
    assert [row.hold_out for row in ROWS] == [index % 2 == 1 for index in range(len(ROWS))]
    assert len({row.name for row in ROWS}) == len(ROWS)
    assert all(row.source and (row.seconds or row.gb) for row in ROWS)


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name)
def test_a_row_is_a_config_that_changes_no_constant(row: Row) -> None:
    words = row.words()
    assert compose(words, Flags(config_dir=(str(CONFIGS),))).pipeline.name == row.pipeline
    assert [word for word in words if word.startswith("hardware.")] == ["hardware.host_ram_gib=1024"]


def test_a_row_is_compared_by_its_scope_and_time_apart_from_memory() -> None:
    planner = shipped_works.ShippedPlanner(connect=False)
    whole, decode = (
        next(row for row in ROWS if row.name == name) for name in ("wan_a14b_480p_h100", "flux_vae_h100_resident")
    )
    found = [compare(row, planner) for row in (whole, decode)]
    assert found[0]["time_ratio"] == pytest.approx(found[0]["foretold_s"] / 326.9)
    assert found[0]["memory_ratio"] == pytest.approx(found[0]["foretold_gb"] / 41.3)
    assert found[1]["foretold_s"] < 1  # of one stage
    assert "memory_ratio" not in found[1]
    told = summary(found)
    assert (told["time, held out"]["rows"], told["time, others"]["rows"], told["memory, held out"]["rows"]) == (1, 1, 0)
    assert [row["name"] for row in outliers(found)] == ["flux_vae_h100_resident"]
    page = plan_vs_published({"rows": found, "summary": told, "unexplained": ["x"]})
    assert any(line.startswith("- flux_vae_h100_resident: ") for line in page)
    assert page[-1] == "- x: not explained"


@pytest.mark.slow
def test_every_row_that_is_far_off_says_why() -> None:
    assert run()["unexplained"] == []
