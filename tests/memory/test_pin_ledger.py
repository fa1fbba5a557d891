"""Who may pin how much."""

from framework.memory.host_budget import HostMemory
from framework.memory.pin_ledger import GIB, PinLedger, PinWant


def ledger(available: float, budget: int | None = None) -> PinLedger:
    return PinLedger(HostMemory(2**60, int(available * GIB), "box"), budget)


def test_five_percent_or_two_gib_are_never_spent() -> None:
    assert ledger(40).spendable_bytes == 38 * GIB
    assert ledger(100).spendable_bytes == 95 * GIB
    assert ledger(1).spendable_bytes == 0


def test_what_fits_is_granted_and_booked() -> None:
    pins = ledger(10)
    assert pins.request("dit", "blocks.0", 5 * GIB)
    assert pins.left_bytes == 3 * GIB
    assert not pins.request("dit", "blocks.1", 5 * GIB)
    assert pins.left_bytes == 3 * GIB


def test_the_first_asker_is_capped_too() -> None:
    assert not ledger(10).request("dit", "blocks.0", 9 * GIB)


def test_zero_bytes_are_free_even_when_nothing_is_left() -> None:
    assert ledger(1).request("vae", "empty", 0)


def test_asking_again_books_nothing_more() -> None:
    pins = ledger(10)
    pins.request("dit", "blocks.0", GIB)
    pins.request("dit", "blocks.0", GIB)
    assert pins.granted_bytes == GIB
    assert len(pins.decisions) == 1


def test_the_budget_key_is_a_tighter_limit_and_is_named() -> None:
    pins = ledger(10, budget=GIB)
    assert not pins.request("dit", "blocks.0", 2 * GIB)
    assert pins.decisions[0].limit == "budget.pinned"


def test_most_copied_bytes_pin_first() -> None:
    pins = ledger(12)
    pins.plan([PinWant("text_encoder", "all", 6 * GIB, uses=1), PinWant("dit", "all", 5 * GIB, uses=40)])
    assert [(d.component, d.granted) for d in pins.decisions] == [("dit", True), ("text_encoder", False)]


def test_a_few_step_model_changes_the_ranking() -> None:
    pins = ledger(12)
    pins.plan([PinWant("dit", "all", 5 * GIB, uses=1), PinWant("text_encoder", "all", 6 * GIB, uses=1)])
    assert [(d.component, d.granted) for d in pins.decisions] == [("text_encoder", True), ("dit", False)]


def test_a_refusal_of_the_platform_gives_the_bytes_back_and_is_logged() -> None:
    pins = ledger(10)
    pins.request("dit", "blocks.0", GIB)
    pins.refuse("dit", "blocks.0")
    assert pins.granted_bytes == 0
    assert [(d.granted, d.limit) for d in pins.decisions] == [(True, "box"), (False, "platform")]
    assert not pins.request("dit", "blocks.0", GIB)


def test_released_bytes_can_be_had_again() -> None:
    pins = ledger(10)
    pins.request("dit", "blocks.0", 8 * GIB)
    pins.release("dit", "blocks.0")
    assert pins.request("vae", "all", 8 * GIB)
