"""The bench of cost growth: what its figures mean."""

import pytest

from bench.scaling import exponent
from bench.tables import scaling


def test_an_exponent_is_that_of_the_last_two_steps() -> None:
    assert exponent((1, 10, 100, 1000), (9.0, 1.0, 50.0, 100.0), False) == pytest.approx(1.0)
    assert exponent((8, 16), (1.0, 4.0), False) == pytest.approx(2.0)
    assert exponent((128, 256), (1.0, 4.0), True) == pytest.approx(1.0)


def test_the_table_says_which_series_grows_too_fast() -> None:
    row = {"series": "layers", "sizes": [1, 2], "seconds": [0.1, 0.4], "exponent": 2.0, "holds": False}
    page = scaling({"limit": 1.15, "noise_s": 0.02, "series": [row]})
    assert "| layers | 2.00 | not met | 1, 2 | 100, 400 |" in page
