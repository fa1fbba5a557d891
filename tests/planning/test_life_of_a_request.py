"""Which components are on the device together, moment by moment."""

import plan_cases as cases

from framework.planning.facts import CallCount, RunWork, StageWork, Work
from framework.planning.uses import Life, live_through, ring_groups

PARTS = {name: cases.sizes(name, "dit", [[1e6, 1e6]], 1e5) for name in ("a", "b", "c")}


def called(name: str, count: int = 1, activations: float = 0, steps: tuple[int, int] | None = None) -> CallCount:
    return CallCount(call=cases.call(PARTS[name], 0.1, activations), count=count, steps=steps)


def life(uses: dict[str, tuple[cases.ComponentUse, ...]], **calls: tuple[CallCount, ...]) -> Life:
    stages = tuple(StageWork(stage=stage, calls=calls.get(stage, ())) for stage in uses)
    return live_through(RunWork(stages=stages), uses)


def together(found: Life, stage: str) -> list[set[str]]:
    return [set(moment.active) for moment in found.moments if moment.stage == stage]


def test_uses_without_a_phase_pile_up_until_their_stage_ends() -> None:
    found = life({"one": (cases.use("a"), cases.use("b"))}, one=(called("a"), called("b")))
    assert together(found, "one") == [set(), {"a"}, {"a", "b"}]


def test_phases_take_turns() -> None:
    uses = {"one": (cases.use("a", "high"), cases.use("b", "low"))}
    found = life(uses, one=(called("a", 3), called("b", 4)))
    assert together(found, "one") == [set(), {"a"}, {"b"}]
    assert [(span.component, span.parts[0][1][0].count) for span in found.spans] == [("a", 3), ("b", 4)]


def test_a_use_from_stage_entry_lasts_for_its_stage() -> None:
    found = life({"one": (cases.use("a", entry=True), cases.use("b"))}, one=(called("b"),))
    assert together(found, "one") == [{"a"}, {"a", "b"}]


def test_the_next_use_is_fetched_when_the_last_one_has_ended() -> None:
    uses = {"one": (cases.use("a"),), "two": (), "three": (cases.use("b"),)}
    found = life(uses, one=(called("a"),), three=(called("b"),))
    assert together(found, "one") == [set(), {"a"}, {"b"}]
    assert together(found, "two") == [{"b"}]
    assert together(found, "three") == [{"b"}, {"b"}] or together(found, "three") == [{"b"}]


def test_a_use_that_allows_no_prefetch_waits_for_its_call() -> None:
    uses = {"one": (cases.use("a"),), "two": (cases.use("b", allow_prefetch=False),)}
    found = life(uses, one=(called("a"),), two=(called("b"),))
    assert {"b"} not in together(found, "one")


def test_stages_that_declare_the_same_use_share_it() -> None:
    uses = {"one": (cases.use("a"),), "two": (cases.use("a"),)}
    found = life(uses, one=(called("a", 2),), two=(called("a", 3),))
    assert len(found.spans) == 1
    assert [stage for stage, _ in found.spans[0].parts] == ["one", "two"]


def test_calls_in_turn_are_counted_as_one_kind_each() -> None:
    uses = {"one": (cases.use("a"), cases.use("b"))}
    turns = tuple(called(name, steps=(i, i + 1)) for i in range(6) for name in ("a", "b"))
    found = life(uses, one=turns)
    assert [[(c.count, c.steps) for c in span.parts[0][1]] for span in found.spans] == [[(6, (0, 6))], [(6, (0, 6))]]
    assert len(found.moments) == 3


def test_a_stage_that_copies_in_every_step_is_told_from_one_that_copies_before_its_loop() -> None:
    uses = {"one": (cases.use("a"),)}

    def copying(copies: int) -> frozenset[str]:
        stage = StageWork(stage="one", calls=(called("a", 8, steps=(0, 8)),), outside=Work(h2d_copies=copies))
        return live_through(RunWork(stages=(stage,)), uses).spans[0].copying

    assert copying(9) == {"one"}
    assert copying(3) == frozenset()


def test_what_has_been_in_use_is_remembered() -> None:
    uses = {"one": (cases.use("a"),), "two": (cases.use("b"),)}
    found = life(uses, one=(called("a"),), two=(called("b"),))
    assert found.moments[-1].seen == {"a", "b"}


def test_a_ring_is_shared_by_those_that_are_never_in_use_together() -> None:
    groups = dict.fromkeys("abc", "dit")
    experts = {"denoise": (cases.use("a", "high"), cases.use("b", "low"))}
    assert ring_groups(experts, groups) == (("a", "b"),)
    assert ring_groups({"denoise": (cases.use("a"), cases.use("b"))}, groups) == ()
    assert ring_groups(experts, {"a": "dit", "b": "vae"}) == ()
