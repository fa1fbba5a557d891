"""Fixtures of the writers' tests."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from output_desk import REQUEST, Desk, random_frames

from framework.runtime import events
from framework.spec import OutputSpec, RequestSpec
from framework.values import Frames


@pytest.fixture
def desk(tmp_path: Path) -> Desk:
    return Desk(tmp_path)


@pytest.fixture
def save(desk: Desk) -> Callable[..., Desk]:
    """Save random frames with the given `OutputSpec` values; return what happened."""

    def run(frames: Frames | None = None, request: RequestSpec = REQUEST, **output: object) -> Desk:
        writer = desk.writer(replace(OutputSpec(), **output), request)
        desk.bus.emit(events.RequestStarted(0, 1, request.prompt, tuple(range(100, 100 + request.num_outputs))))
        writer.save(random_frames() if frames is None else frames, 0)
        return desk

    return run
