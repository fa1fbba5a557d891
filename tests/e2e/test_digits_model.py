"""The embedded model, judged through the shipped defaults: the picture shows what the prompt says."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from framework.compose import compose
from framework.graph import build_graph
from framework.loading.load import load_store
from framework.runtime.events import EventBus
from framework.runtime.scheduler import run_requests
from framework.values import Frames
from tools.judge_digits import CASES, Case, Judge, Verdict


@pytest.fixture(scope="module")
def judge() -> Judge:
    return Judge()


@pytest.fixture(scope="module")
def verdict(judge: Judge) -> Verdict:
    """All forty clips of the fixed test set, made by one store as `run` would make them."""
    plain = compose(["pipeline=digits", "device=cpu"])
    graph = build_graph(plain.pipeline)
    store = load_store(plain.pipeline, graph, plain.placements, EventBus(), torch.device("cpu"))

    def make_clip(case: Case) -> np.ndarray:
        request = replace(plain.requests[0], prompt=case.prompt, seeds=(case.seed,))
        result = run_requests(replace(plain, requests=(request,)), graph, store, EventBus(), keep=["frames"])
        frames = result.requests[0].values["frames"]
        assert isinstance(frames, Frames)
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
