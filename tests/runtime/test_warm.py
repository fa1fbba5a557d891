"""Which weights a run may take over from the run before, and when a plan must be made anew."""

from dataclasses import replace
from typing import Any
from unittest.mock import Mock

import pytest

from framework.compose.composer import compose
from framework.runtime.load_key import can_be_kept, load_key
from framework.runtime.warm import Loaded, Warm


def loaded(kind: str) -> Any:
    return Loaded(Mock(kind=kind), Mock(), Mock(), Mock(), Mock())


SAME = ("seed=3", "prompt=other", "request.num_inference_steps=2", "pipeline.defaults.request.guidance_scale=1.0")
OTHER = (
    "residency=minimal",
    "numerics.vae_tiling=true",
    "pipeline.model.dtype=bfloat16",
    "pipeline.scheduler.flow_shift=2.0",
    "device=cpu",
    "hardware=rtx_3060_12gb",
    "budget.device=1GiB",
)


@pytest.mark.parametrize("word", SAME)
def test_requests_do_not_touch_the_load_key(word: str) -> None:
    assert load_key(compose(["device=sim", word])) == load_key(compose(["device=sim"]))


@pytest.mark.parametrize("word", OTHER)
def test_what_weights_depend_on_does(word: str) -> None:
    words = [word] if word.startswith("device=") else ["device=sim", word]
    assert load_key(compose(words)) != load_key(compose(["device=sim"]))


def test_a_bound_by_what_is_free_keeps_nothing() -> None:
    spec = compose(["device=sim", "budget.device=free-1GiB"])
    assert not can_be_kept(spec)
    warm = Warm()
    warm.keep(spec, spec, loaded("sim"))
    assert warm.find(spec) is None


def test_other_weights_are_given_up_before_the_next_are_loaded() -> None:
    spec, warm, kept = compose(["device=sim"]), Warm(), loaded("sim")
    warm.keep(spec, spec, kept)
    assert warm.find(spec) is kept
    assert warm.find(compose(["device=sim", "residency=minimal"])) is None
    kept.placed.close.assert_called_once()
    kept.platform.release_cache.assert_called_once()


def test_a_decision_is_taken_over_where_the_same_was_asked() -> None:
    """A plan beside kept weights would come out otherwise than in a process of its own."""
    asked = compose(["device=sim"])
    decided = replace(asked, placements={}, planned=False)
    for kind, given_up in (("cuda", True), ("sim", False)):
        warm, kept = Warm(), loaded(kind)
        warm.keep(asked, decided, kept)
        again = warm.decision(compose(["device=sim", "seed=9", "request.num_inference_steps=2"]))
        assert again is not None
        assert again.placements == {}
        assert again.requests[0].seeds == (9,)
        assert warm.decision(compose(["device=sim", "request.height=64"])) is None
        assert kept.placed.close.called is given_up


def test_nothing_of_a_failed_run_is_kept() -> None:
    spec, warm, kept = compose(["device=sim"]), Warm(), loaded("sim")
    warm.keep(spec, spec, kept)
    warm.forget()
    assert warm.find(spec) is None
    kept.placed.close.assert_not_called()  # in whatever state it is
