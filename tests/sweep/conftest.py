"""Sweeps in this process, with real workers or with ones that cost nothing."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from framework.cli import main
from framework.sweep import process


@pytest.fixture
def fake_workers(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have sweeps start `fake_worker` processes."""
    monkeypatch.setattr(process, "MODULE", "fake_worker")


@pytest.fixture
def sweep(tmp_path: Path) -> Callable[..., int]:
    """Run `sweep --dir tmp_path/s WORDS` and return the exit code."""
    return lambda *words: main(["sweep", "--dir", str(tmp_path / "s"), *words])


@pytest.fixture
def states(tmp_path: Path) -> Callable[[], dict[int, dict[str, Any]]]:
    """Return what `job.json` says of each job, by number."""

    def read() -> dict[int, dict[str, Any]]:
        found = [json.loads(path.read_text(encoding="utf-8")) for path in (tmp_path / "s").glob("*/job.json")]
        return {state["number"]: state for state in sorted(found, key=lambda state: state["number"])}

    return read
