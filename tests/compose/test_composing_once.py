"""The same packaged files are put together once in a process, and nobody sees another's overrides."""

import pytest

from framework.compose import compose, hydra_compose


def test_a_second_run_of_the_same_groups_does_not_ask_hydra(monkeypatch: pytest.MonkeyPatch) -> None:
    first = compose(["pipeline=digits", "seed=1"])
    monkeypatch.setattr(hydra_compose, "compose_files", lambda *rest: pytest.fail("composed again"))
    assert compose(["pipeline=digits", "seed=1"]) == first


def test_overrides_and_prompts_of_one_run_do_not_reach_the_next() -> None:
    compose(["prompt=a ${x} four", "seed=[1,2]", "request.num_outputs=2", "++pipeline.hints.auto_prefetch=3"])
    plain = compose([])
    assert plain.requests[0].prompt == "a seven moving right"
    assert plain.requests[0].seeds is None
    assert plain.pipeline.hints.get("auto_prefetch") is None
