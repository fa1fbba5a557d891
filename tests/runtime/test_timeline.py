"""Which use is expected next."""

from framework.runtime.timeline import Timeline
from framework.spec import ComponentUse

A, B, C = (("stage", ComponentUse(component=name)) for name in "abc")


def test_declared_uses_are_expected_in_their_order() -> None:
    timeline = Timeline()
    timeline.start((A, B, C))
    assert timeline.following() == A
    timeline.begin(*B)
    assert timeline.following() == C
    timeline.begin(*A)  # an unexpected one changes nothing
    assert timeline.following() == C


def test_a_complete_request_teaches_the_next() -> None:
    timeline = Timeline()
    for complete, expected in ((False, B), (True, B), (True, C)):
        timeline.start((A, B, C))
        timeline.begin(*A)
        assert timeline.following() == expected
        timeline.begin(*C)
        timeline.finish(complete)


def test_another_declaration_forgets_what_was_learned() -> None:
    timeline = Timeline()
    timeline.start((A, B, C))
    timeline.begin(*C)
    timeline.finish(complete=True)
    timeline.start((A, B))
    assert timeline.following() == A


def test_after_a_stop_nothing_is_expected() -> None:
    timeline = Timeline()
    timeline.start((A, B))
    timeline.stop()
    assert timeline.following() is None
