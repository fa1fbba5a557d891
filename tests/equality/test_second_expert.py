"""The first request of a process fetches the head of Wan's second expert before the boundary, as later ones do."""

from collections.abc import Callable
from dataclasses import replace

import pytest
from equality_cases import Plan
from equality_rig import Rig, Subject, same

from framework.runtime.events import Event, StepDone
from framework.runtime.phases import steps_before_switch

pytestmark = pytest.mark.equality


@pytest.mark.parametrize("prefetch", [pytest.param("1", marks=pytest.mark.slow), "2"])
def test_the_second_experts_head_comes_during_the_first_ones_last_step(
    prefetch: str, subjects: Callable[[str], Subject]
) -> None:
    wan = subjects("wan22")
    request = replace(wan.requests[0], num_inference_steps=4)
    rig = Rig(wan, Plan("layerwise-offload", prefetch=prefetch))
    switches: list[int | None] = []

    def look(event: Event) -> None:
        if isinstance(event, StepDone):
            store = rig.loaded()
            switches.append(steps_before_switch(store.options, store.components["scheduler"]))

    rig.load()
    rig.watchers.append(look)
    first = rig.make(request)
    before = switches[0]
    assert before == 2, "the case needs a step after which the end of the phase is known"
    moved = [move for move in rig.world.moves if move.component == "transformer_2" and "blocks" in str(move.layer)]
    early = [move.layer for move in moved if move.step == before]
    assert len(early) == int(prefetch) + 1, "the ring's slots are filled before the boundary"
    assert not [move for move in moved if move.step is not None and move.step < before], "and no step earlier"
    wasted = [move for move in rig.world.moves if move.component == "transformer" and (move.step or 0) > before]
    assert not wasted, "nothing of the first expert is fetched for a step that does not come"
    assert same(rig.make(request), first)
    rig.close()
