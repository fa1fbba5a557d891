"""Looking for NaN and infinity in whatever crosses a stage boundary."""

import pytest
import torch

from framework.runtime.finite import FiniteWatch, all_finite
from framework.values import Frames, Latents

GOOD, BAD = torch.ones(2), torch.tensor([1.0, float("inf")])


@pytest.mark.parametrize("wrap", [lambda t: t, lambda t: [GOOD, t], lambda t: Latents(t, 1, 1, 1), lambda t: Frames(t)])
def test_a_bad_tensor_is_found_in_every_kind_of_value(wrap) -> None:
    assert all_finite(wrap(GOOD))
    assert not all_finite(wrap(BAD))


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.float16, torch.bfloat16])
@pytest.mark.parametrize("bad", [float("nan"), float("inf"), -float("inf")])
def test_one_bad_value_among_many_is_found_wherever_it_lies(dtype: torch.dtype, bad: float) -> None:
    for place in (0, 777, 9999):
        values = torch.randn(10_000, dtype=dtype)
        assert all_finite(values)
        values[place] = bad
        assert not all_finite(values.reshape(100, 100).t())


def test_whole_numbers_and_nothing_are_finite() -> None:
    assert all_finite(torch.arange(3))
    assert all_finite(torch.empty(0))
    assert all_finite(None)


def test_a_loop_on_the_cpu_hears_of_it_at_once() -> None:
    watch = FiniteWatch()
    assert watch.add("at step 1", GOOD) is None
    assert watch.add("at step 2", BAD) == "at step 2"


def test_elsewhere_the_first_is_known_when_the_flags_are_read() -> None:
    watch = FiniteWatch()
    watch._flags = [("at step 1", torch.tensor(True)), ("at step 2", torch.tensor(False)), ("at step 3", BAD.sum() > 9)]
    assert watch.first_bad() == "at step 2"
