"""What rows of settings say of the goals of `peers_sim`. No torch."""

from typing import Any

from bench.peers_goals import BUDGET, IMAGES, ONE_COPY, ONE_WAY, PEAK, SAME, check
from bench.tables import peers_sim

ROW: dict[str, Any] = {
    "seconds": 10.0,
    "step_s": 1.0,
    "peak_bytes": 100,
    "pinned_bytes": 100,
    "h2d_bytes": 1000,
    "d2h_bytes": 0,
    "weights_d2h_bytes": 0,
    "copies": 1.0,
    "same_picture": True,
    "why": None,
}
PEER = {**ROW, "setting": "group", "seconds": 16.0}
AUTO = {**ROW, "setting": "ours, auto"}
NO_ROOM = {**ROW, "setting": "diffusers resident", "seconds": None, "why": "does not fit"}
PAIR = {"peer": "group", "peak_bytes": 100, "peer_s": 16.0, "ours": "ours, auto", "ours_s": 10.0}


def case(*rows: dict[str, Any], **changes: Any) -> dict[str, Any]:
    found = {"model": "flux", "hardware": "card", "image": True, "steps": 4, "ample_resident_s": 9.0, "within": [PAIR]}
    found |= {"capacity_bytes": 100, "denoiser_bytes": 200, "rows": list(rows)}
    found |= {"activations": 0.021, "real_activations": 0.02, **changes}
    return {**found, "goals": check(found)}


def goals(*rows: dict[str, Any], **changes: Any) -> dict[str, tuple[bool | None, str]]:
    return {one["goal"]: (one["holds"], one["figure"]) for one in case(*rows, **changes)["goals"]}


def test_all_goals_hold_where_ours_is_faster_by_enough() -> None:
    found = goals(AUTO, PEER, NO_ROOM)
    assert {holds for holds, _ in found.values()} == {True}
    assert found[BUDGET][1] == "1.60 x group"


def test_a_peer_that_is_faster_misses_the_budget_goal() -> None:
    assert goals(AUTO, {**PEER, "seconds": 9.0}, NO_ROOM)[BUDGET] == (False, "0.90 x group")
    assert goals(AUTO, {**PEER, "seconds": 9.98}, NO_ROOM)[BUDGET] == (False, "0.998 x group")
    assert goals({**AUTO, "seconds": None}, PEER, NO_ROOM)[BUDGET][0] is False


def test_images_need_half_as_much_again_and_say_what_could_be_had() -> None:
    holds, figure = goals(AUTO, {**PEER, "seconds": 12.0}, NO_ROOM)[IMAGES]
    assert holds is False
    assert "1.20 x group" in figure
    assert "1.33 x" in figure
    assert goals(AUTO, PEER, {**NO_ROOM, "seconds": 9.0})[IMAGES][0] is None
    assert goals(AUTO, PEER, NO_ROOM, image=False)[IMAGES][0] is None


def test_a_peak_that_is_too_small_for_us_misses_its_goal_with_the_factor() -> None:
    small = {**PAIR, "peak_bytes": 25, "ours_s": None}
    assert goals(AUTO, PEER, NO_ROOM, within=[small])[PEAK] == (False, "ours needs 4.0 x the peak of group")
    slow = {**PAIR, "ours_s": 20.0}
    assert goals(AUTO, PEER, NO_ROOM, within=[slow])[PEAK] == (False, "0.80 x group")


def test_weights_that_come_back_copies_made_twice_and_other_pictures_are_told() -> None:
    wrong = {**AUTO, "weights_d2h_bytes": 1, "copies": 2.0, "same_picture": False}
    found = goals(wrong, PEER, NO_ROOM)
    assert [found[goal][0] for goal in (ONE_WAY, ONE_COPY, SAME)] == [False, False, False]


def test_the_page_puts_the_goals_before_the_settings() -> None:
    page = "\n".join(peers_sim([case(AUTO, PEER, NO_ROOM)]))
    assert page.index("**at the same memory") < page.index("### flux on card")
    assert "| diffusers resident | does not fit |" in page
    assert "Activations of a call take 0.021 of its bytes, really 0.020." in page
