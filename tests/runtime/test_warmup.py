"""A warm-up request: one step of the first request, nothing kept of it, weights left ready (LI-05)."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import spec_builders
import torch
from spec_builders import request

from framework.runtime.events import Event, EventBus, Note, RequestStarted, StepDone
from framework.runtime.scheduler import run_requests, with_fewest_steps

Named = Callable[[str], Any]


class Saved:
    """A writer that counts."""

    def __init__(self) -> None:
        self.count = 0

    def save(self, frames: Any, request_index: int) -> None:
        self.count += 1


def run(loaded: Any, warmup: bool) -> tuple[torch.Tensor, list[Event], Saved, int]:
    """Frames, events, what was written, and how often the denoiser ran."""
    pipeline, graph, store = loaded
    spec = spec_builders.run_spec(pipeline, request(), warmup=warmup)
    events: list[Event] = []
    saved, calls = Saved(), []
    handle = store.module("transformer").register_forward_hook(lambda *_: calls.append(1))
    result = run_requests(spec, graph, store, EventBus(events.append), saved, keep=("frames",))
    handle.remove()
    return result.requests[0].values["frames"].data, events, saved, len(calls)


def test_a_warmup_changes_no_picture_and_leaves_one_line_when_it_begins_and_ends(loaded_stores: Named) -> None:
    cold, without, _, calls = run(loaded_stores("wan21"), warmup=False)
    warm, events, saved, more_calls = run(loaded_stores("wan21"), warmup=True)
    assert torch.equal(cold, warm)
    assert saved.count == 1
    assert more_calls - calls == calls // 3, "one step of three"
    notes = [event.text for event in events if isinstance(event, Note)]
    assert notes[0] == "warm-up: the first request once with 1 step, nothing of it is kept"
    assert notes[1].startswith("warm-up done in ")
    for kind in (RequestStarted, StepDone):
        assert len([e for e in events if isinstance(e, kind)]) == len([e for e in without if isinstance(e, kind)])


def test_a_warmup_encodes_and_keeps_no_embedding(loaded_stores: Named) -> None:
    encoded: list[int] = []
    store = loaded_stores("wan21")[2]
    handle = store.module("text_encoder").register_forward_hook(lambda *_: encoded.append(1))
    run(loaded_stores("wan21"), warmup=False)
    once = len(encoded)
    run(loaded_stores("wan21"), warmup=True)
    handle.remove()
    assert len(encoded) == 3 * once


@pytest.mark.parametrize(
    ("steps", "strength", "fewest"),
    [(30, None, 1), (30, 1.0, 1), (30, 0.6, 2), (30, 0.05, 20), (10, 0.05, 10), (None, None, None), (4, 0.0, 1)],
)
def test_the_fewest_steps_leave_one_where_strength_skips_some(
    steps: int | None, strength: float | None, fewest: int | None
) -> None:
    wanted = replace(request(), num_inference_steps=steps, strength=strength)
    assert with_fewest_steps(wanted).num_inference_steps == fewest
    if strength and steps and fewest and fewest < steps:
        assert int(fewest * strength) >= 1, "diffusers keeps int(steps * strength) of them"
