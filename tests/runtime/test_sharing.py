"""Who is in use at once, who shares a ring, and what is refused because it does not fit together."""

import pytest

from framework.errors import PlanError
from framework.graph import Graph, Node
from framework.runtime.sharing import Footprint, check_fit, ring_names, used_together
from framework.spec import ComponentUse, Placement, StageSpec


def node(name: str, *uses: tuple[str, str | None, bool]) -> Node:
    declared = tuple(
        ComponentUse(component=component, phase=phase, start_at_stage_entry=at_entry)
        for component, phase, at_entry in uses
    )
    spec = StageSpec(name=name, kind="test")
    return Node(spec=spec, stage_class=None, reads={}, optional_reads={}, writes={}, component_uses=declared)


EXPERTS = node("denoise", ("one", "high", False), ("two", "low", False))
SIDE = node("denoise", ("unet", None, False), ("controlnet", None, False))
GROUPS = {"one": "dit", "two": "dit", "unet": "dit", "controlnet": "dit", "text": "text_encoder"}


def placements(**modes: str) -> dict[str, Placement]:
    return {name: Placement(component=name, group=None, mode=mode) for name, mode in modes.items()}


def test_phases_follow_each_other_and_everything_else_overlaps() -> None:
    assert list(used_together(EXPERTS)) == [("one",), ("two",)]
    assert list(used_together(SIDE)) == [("unet", "controlnet")]
    mixed = node("all", ("vae", None, True), ("one", "high", False), ("two", "low", False))
    assert list(used_together(mixed)) == [("vae", "one"), ("vae", "two")]


def test_streamed_components_of_one_group_share_a_ring_where_they_take_turns() -> None:
    streamed = placements(one="layerwise-offload", two="layerwise-offload")
    assert ring_names(Graph((EXPERTS,)), streamed, GROUPS) == {"one": "denoise.dit", "two": "denoise.dit"}
    assert ring_names(Graph((EXPERTS,)), {**streamed, **placements(two="component-offload")}, GROUPS) == {}
    side = placements(unet="layerwise-offload", controlnet="layerwise-offload")
    assert ring_names(Graph((SIDE,)), side, GROUPS) == {}
    text = node("denoise", ("one", "high", False), ("text", "first", False))
    assert ring_names(Graph((text,)), placements(one="layerwise-offload", text="layerwise-offload"), GROUPS) == {}


@pytest.mark.parametrize(("graph", "fits"), [(EXPERTS, True), (SIDE, False)])
def test_whole_components_in_use_at_once_have_to_fit_together(graph: Node, fits: bool) -> None:
    names = [use.component for use in graph.component_uses]
    footprints = {name: Footprint(60, 0) for name in names}
    modes = dict.fromkeys(names, "component-offload")
    if fits:
        check_fit(Graph((graph,)), modes, footprints, 100)
        return
    with pytest.raises(
        PlanError, match=r"uses unet and controlnet at once.*component_residency.unet=layerwise-offload"
    ):
        check_fit(Graph((graph,)), modes, footprints, 100)
    check_fit(Graph((graph,)), modes, footprints, 120)


def test_what_stays_of_others_counts_too() -> None:
    footprints = {"one": Footprint(60, 0), "two": Footprint(60, 0), "vae": Footprint(50, 50)}
    modes = {"one": "component-offload", "two": "component-offload", "vae": "resident"}
    with pytest.raises(PlanError, match="stage 'denoise' uses one: "):
        check_fit(Graph((EXPERTS,)), modes, footprints, 100)


def test_streaming_alone_is_left_to_the_run() -> None:
    modes = dict.fromkeys(("unet", "controlnet"), "layerwise-offload")
    check_fit(Graph((SIDE,)), modes, {name: Footprint(60, 0) for name in modes}, 100)
