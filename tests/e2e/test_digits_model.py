"""The embedded model, judged through the shipped defaults: the picture shows what the prompt says."""

import numpy as np
import pytest

from framework.compose import compose
from framework.runtime.execute import open_store, run_requests_in_memory
from tools.judge_digits import CASES, Case, Judge, Verdict


@pytest.fixture(scope="module")
def judge() -> Judge:
    return Judge()


@pytest.fixture(scope="module")
def verdict(judge: Judge) -> Verdict:
    """All forty clips of the fixed test set, made by one store as `run` would make them."""
    store = open_store(compose(["pipeline=digits", "device=cpu"]))

    def make_clip(case: Case) -> np.ndarray:
        spec = compose(["pipeline=digits", f"prompt={case.prompt}", f"seed={case.seed}", "device=cpu"])
        (frames,) = run_requests_in_memory(spec, store)
        return frames.data[0].numpy()

    return judge.judge(make_clip)


def test_the_judge_reads_real_digits(judge: Judge) -> None:
    assert judge.accuracy >= 0.97


def test_nine_clips_in_ten_show_their_digit_from_first_to_last_frame(verdict: Verdict) -> None:
    print(verdict.confusion())
    assert verdict.right_clips() >= 0.9 * len(CASES)


@pytest.mark.parametrize("digit", range(10))
def test_no_digit_is_weak(verdict: Verdict, digit: int) -> None:
    assert verdict.right_clips(digit) >= 3


def test_the_digit_moves_where_the_prompt_says(verdict: Verdict) -> None:
    assert verdict.right_directions() >= 0.95 * len(CASES)
