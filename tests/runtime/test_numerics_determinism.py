"""Deterministic kernels: for the run only, with the environment that they need said before."""

import os
from collections.abc import Callable
from pathlib import Path

import numerics_builders as build
import pytest
import torch

from framework.errors import ConfigError
from framework.runtime.determinism import (
    WORKSPACE,
    deterministic_kernels,
    prepare_environment,
    prepared_environment,
)
from framework.spec import NumericsSpec


def switches() -> tuple[bool, bool, bool]:
    cudnn = torch.backends.cudnn
    return torch.are_deterministic_algorithms_enabled(), cudnn.deterministic, cudnn.benchmark


def test_the_switches_last_for_the_block() -> None:
    before = switches()
    with deterministic_kernels(True):
        assert switches() == (True, True, False)
    assert switches() == before
    with deterministic_kernels(False):
        assert switches() == before


def test_the_environment_is_said_once_and_taken_back(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(WORKSPACE, raising=False)
    with prepared_environment(True):
        assert os.environ[WORKSPACE] == ":4096:8"
    assert WORKSPACE not in os.environ
    with prepared_environment(False):
        assert WORKSPACE not in os.environ


def test_what_the_user_has_said_stays_or_is_refused() -> None:
    said = {WORKSPACE: ":16:8"}
    assert not prepare_environment(True, said)
    assert said == {WORKSPACE: ":16:8"}
    with pytest.raises(ConfigError, match=r"numerics.deterministic: the environment has CUBLAS_WORKSPACE_CONFIG=:0:0"):
        prepare_environment(True, {WORKSPACE: ":0:0"})


def test_a_run_is_deterministic_inside_and_leaves_no_trace(
    tiny_folder: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    from framework.runtime.scheduler import run_requests

    inside: list[tuple[bool, bool]] = []

    def watched(*words: object, **more: object) -> object:
        inside.append((switches()[0], WORKSPACE in os.environ))
        return run_requests(*words, **more)  # type: ignore[arg-type]

    monkeypatch.delenv(WORKSPACE, raising=False)
    monkeypatch.setattr("framework.runtime.run.run_requests", watched)
    before = switches()
    wanted = build.two_requests(num_inference_steps=1)[0]
    made = build.make(build.wan(tiny_folder), NumericsSpec(deterministic=True), wanted, device="cpu")
    assert inside == [(True, True)]
    assert (switches(), WORKSPACE in os.environ) == (before, False)
    assert len(made.frames) == 1
