"""An event that nobody hears costs next to nothing."""

from bench.events import measure
from framework.runtime.events import EventBus, Note


def test_an_event_that_nobody_hears_costs_less_than_a_microsecond() -> None:
    assert measure(EventBus()) < 1000


def test_a_bus_is_heard_while_somebody_listens_and_is_not_muted() -> None:
    heard: list[object] = []
    bus = EventBus()
    assert not bus.heard
    bus.subscribe(heard.append)
    assert bus.heard
    with bus.muted():
        assert not bus.heard
        bus.emit(Note("not told"))
    assert (bus.heard, heard) == (True, [])
