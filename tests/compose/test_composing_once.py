"""Composing is quick: Hydra reads no files of its own, the same packaged files are put together once in a
process, and nobody sees another's overrides."""

import pytest
from hydra.conf import HydraConf
from hydra.core.config_store import ConfigStore
from omegaconf import OmegaConf

from framework.compose import compose, hydra_compose
from framework.errors import ConfigError


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


def test_hydra_reads_none_of_its_own_files(monkeypatch: pytest.MonkeyPatch) -> None:
    """They are of its launchers, sweepers and logs, and would take half of the time."""
    monkeypatch.setattr(OmegaConf, "load", lambda file: pytest.fail(f"read {file}"))
    hydra_compose.compose_files(["pipeline=digits"])


def test_a_program_that_uses_hydra_itself_finds_its_config_as_it_was() -> None:
    with pytest.raises(ConfigError):
        hydra_compose.compose_files(["pipeline=none_such"])
    assert ConfigStore.instance().load("hydra/config.yaml").node.defaults == HydraConf().defaults
