"""Where memory runs out in a planned run, the plan's next-best goes first: the cheapest, and idle components."""

from typing import Any

from torch import nn

from framework.runtime.notches import next_notch, planned
from framework.runtime.sharing import Footprint
from framework.spec import Knob, NextBest, Placement

MODULES = {name: nn.Linear(2, 2) for name in ("dit", "vae")}


class Placed:
    """Placements alone."""

    def __init__(self, **modes: str) -> None:
        self.placements = {name: Placement(component=name, group=None, mode=mode) for name, mode in modes.items()}

    def components(self) -> tuple[str, ...]:
        return tuple(self.placements)

    def placement(self, name: str) -> Placement:
        return self.placements[name]

    def footprints(self) -> dict[str, Footprint]:
        return {name: Footprint(100, 100) for name in self.placements}


def streamed(resident: str) -> Placement:
    knobs: dict[str, Any] = {"prefetch": Knob("1"), "resident": Knob(resident), "policy": "strided"}
    return Placement(component="dit", group=None, mode="layerwise-offload", **knobs)


WHOLE_VAE = Placement(component="vae", group=None, mode="component-offload")
PLAN = (NextBest(streamed("4"), 0.1, 20, 90), NextBest(WHOLE_VAE, 0.5, 0, 50), NextBest(streamed("0"), 0.9, 80, 95))


def test_the_plan_says_what_goes_next_and_what_has_gone_is_not_asked_again() -> None:
    placed: Any = Placed(dit="resident", vae="resident")
    order = planned(PLAN)
    first = order(placed, "dit", {"dit"}, MODULES, ())
    assert first is not None
    assert first.placement == WHOLE_VAE, "what is idle goes before what is in use"
    assert first.text == "vae: resident -> component-offload, the plan's next-best"
    placed.placements["vae"] = WHOLE_VAE
    second = order(placed, "dit", {"dit"}, MODULES, ())
    assert second is not None
    assert second.placement == PLAN[0].placement, "the cheapest of what is in use"
    assert second.words == "component_residency.dit=layerwise-offload layerwise.dit.resident=4 layerwise.dit.prefetch=1"
    placed.placements["dit"] = second.placement
    third = order(placed, "dit", {"dit"}, MODULES, ())
    assert third is not None
    assert third.placement == PLAN[2].placement
    placed.placements["dit"] = third.placement
    last = order(placed, "dit", {"dit"}, MODULES, ())
    assert last is None or "next-best" not in last.text


def test_without_a_plan_the_rules_of_thumb_hold() -> None:
    assert planned(()) is next_notch
