"""The page on the life of a run has pictures that the tool draws."""

import sys
from pathlib import Path

import pytest

from tools import draw_life

PAGE = Path(__file__).parents[2] / "docs" / "life-of-a-run.md"


def event(track: str, cat: str, name: str, ts: float, **arguments: object) -> dict[str, object]:
    return {"track": track, "cat": cat, "name": name, "ts": ts, "dur": 10.0, "args": arguments}


def test_a_picture_has_a_shape_for_every_span_in_it_and_none_beside() -> None:
    events = [
        event("compute", "work", "dit <0>", 0.0, component="transformer"),
        event("compute", "stall", "waits", 10.0, component="transformer"),
        event("copy", "move", "dit.1", 5.0, component="transformer", bytes=1024),
        event("copy", "move", "later", 50.0, component="vae"),
    ]
    drawn = draw_life.draw(events, 0.0, 20.0, "One")
    assert drawn.count("<title>") == 3
    assert "dit &lt;0&gt;: 10.0 us" in drawn
    assert "dit.1: 10.0 us, 1.0 KiB" in drawn
    assert drawn.count(f'fill="{draw_life.STALL}"') == 2  # the wait and its entry in the legend


def test_the_page_shows_every_picture_and_they_are_small() -> None:
    text = PAGE.read_text(encoding="utf-8")
    found = sorted(draw_life.PICTURES.iterdir())
    assert [path.name for path in found] == ["request.svg", "step.svg"]
    assert all(f"pictures/{path.name}" in text and path.stat().st_size < 40_000 for path in found)


@pytest.mark.slow
def test_the_pictures_are_as_the_tool_draws_them_now(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", ["draw_life", "--check"])
    assert draw_life.main() == 0
