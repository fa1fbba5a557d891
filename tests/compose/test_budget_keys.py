"""The spellings of a budget, and the older keys that become one."""

import pytest

from framework.compose.budget import read_bound
from framework.compose.composer import compose
from framework.spec import Bound

GIB = 1024**3


@pytest.mark.parametrize(
    ("written", "of_100_with_60_free"),
    [
        (40, 40),
        ("40", 40),
        ("40 B", 40),
        (8e1, 80),
        ("80%", 80),
        ("12.5 %", 12),
        ("free", 60),
        ("free-20B", 40),
        ("FREE - 90", 0),
    ],
)
def test_a_bound_is_bytes_a_share_or_what_is_free_less_some(written: object, of_100_with_60_free: int) -> None:
    assert read_bound(written).of(total_bytes=100, free_bytes=60) == of_100_with_60_free


def test_units_are_those_of_the_knobs() -> None:
    assert read_bound("8GiB") == Bound("8GiB", size_bytes=8 * GIB)
    assert read_bound("1.5gb").size_bytes == 1_500_000_000
    assert read_bound("free-2GiB").below_free_bytes == 2 * GIB


@pytest.mark.parametrize(
    "written", [True, "", "%", "101%", "-1", "-5%", "1.5", 0.8, "8 elephants", "free+1", "free-", []]
)
def test_anything_else_is_refused_with_the_forms(written: object) -> None:
    with pytest.raises(ValueError, match="bytes such as 8GiB"):
        read_bound(written)


def test_a_run_gets_its_bounds() -> None:
    spec = compose(["budget={device: 80%, host: free-2GiB, disk: 1GiB}", "budget.pinned=0"])
    assert spec.budget.device is not None
    assert spec.budget.device.share == 0.8
    assert spec.budget.host is not None
    assert spec.budget.host.below_free_bytes == 2 * GIB
    assert spec.budget.pinned == Bound("0", size_bytes=0)
    assert spec.budget.disk == Bound("1GiB", size_bytes=GIB)
    assert compose([]).budget.device is None


def test_older_keys_become_budget_and_warmup() -> None:
    spec = compose(["pin_cpu_memory=false", "warmup_mode=request"])
    assert spec.budget.pinned == Bound("0", size_bytes=0)
    assert spec.warmup
    assert not compose(["warmup_mode=off"]).warmup


def test_the_user_s_own_key_beats_an_older_one_and_a_line_says_so() -> None:
    spec = compose(["pin_cpu_memory=false", "budget.pinned=1GiB", "warmup_mode=request", "warmup=off"])
    assert spec.budget.pinned == Bound("1GiB", size_bytes=GIB)
    assert not spec.warmup
    beaten = [note for note in spec.notes if "no effect" in note]
    assert [note.partition("): ")[2] for note in beaten] == [
        "budget.pinned=0: no effect: beaten by budget.pinned=1GiB (from the command line: budget.pinned=1GiB)",
        "warmup=request: no effect: beaten by warmup=off (from the command line: warmup=off)",
    ]
