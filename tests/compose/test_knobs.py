"""Spellings and units of the layerwise knobs (SX-2)."""

import pytest
from resolver_cases import errors, facts, notes, run

from framework.compose.knobs import Amount, read_amount, to_layers
from framework.spec import Knob

ONE = facts(transformer=(6,))
STREAMED = {"component_residency.transformer": "layerwise-offload"}


def layers(knob: str, value: object, num_layers: int) -> int:
    return to_layers(knob, read_amount(knob, value), num_layers)


PREFETCH = [
    (0.25, 8, 3),
    (0.25, 30, 8),
    (0.25, 60, 16),
    (0, 8, 0),
    ("0%", 8, 0),
    (0.99, 10, 10),
    (1, 10, 1),
    (1.0, 10, 1),
    (1.9, 10, 1),
    (100, 8, 8),
    ("all", 8, 8),
    ("100%", 8, 8),
    ("50 %", 8, 5),
    ("2", 8, 2),
    (0.4, 1, 1),
]
RESIDENT = [
    (0.5, 8, 4),
    (0.02, 40, 1),
    (100, 8, 8),
    (0, 8, 0),
    (0.5, 5, 2),
    (1.0, 8, 1),
    ("all", 8, 8),
    ("100%", 8, 8),
    ("25%", 8, 2),
    (7, 6, 6),
    (0.99, 1, 1),
    (3, 0, 0),
]


@pytest.mark.parametrize(("value", "num_layers", "expected"), PREFETCH)
def test_prefetch_in_whole_layers(value: object, num_layers: int, expected: int) -> None:
    assert layers("prefetch", value, num_layers) == expected


@pytest.mark.parametrize(("value", "num_layers", "expected"), RESIDENT)
def test_resident_in_whole_layers(value: object, num_layers: int, expected: int) -> None:
    assert layers("resident", value, num_layers) == expected


@pytest.mark.parametrize(
    ("text", "size"), [("6GiB", 6 * 1024**3), ("512 mib", 512 * 1024**2), ("1.5GB", 1_500_000_000), ("100b", 100)]
)
def test_resident_takes_bytes(text: str, size: int) -> None:
    placement = run(STREAMED | {"layerwise.transformer.resident": text}, ONE).placements["transformer"]
    assert placement.resident == Knob(text, size_bytes=size)


BAD = [-1, "-1", "abc", "", float("nan"), "nan", float("inf"), "1e999", "101%", "-5%", True, None, [1], "1_0", "٣"]


@pytest.mark.parametrize("value", BAD, ids=repr)
@pytest.mark.parametrize("knob", ["prefetch", "resident"])
def test_cf09_what_is_no_amount_is_refused_with_the_units(knob: str, value: object) -> None:
    with pytest.raises(ValueError, match="fraction of the layers, from 1 a count of layers"):
        read_amount(knob, value)


def test_prefetch_takes_no_bytes() -> None:
    assert "which only 'resident' takes" in errors(STREAMED | {"layerwise.dit.prefetch": "1GiB"}, ONE)


@pytest.mark.parametrize("policy", ["leading", "strided"])
@pytest.mark.parametrize("num_layers", [1, 6])
def test_cf09_every_pair_resolves_to_whole_numbers_or_is_refused_by_name(policy: str, num_layers: int) -> None:
    components = facts(transformer=(num_layers,))
    near = (num_layers - 1, num_layers, num_layers + 1)
    for value in (-1, 0, 0.4, 0.99, 1, 1.0, *near, 100, "abc", float("nan")):
        for knob in ("prefetch", "resident"):
            key = f"layerwise.transformer.{knob}"
            asked = STREAMED | {"layerwise.transformer.policy": policy, key: value}
            if value in (-1, "abc") or value != value:
                assert key in errors(asked, components)
                continue
            placement = run(asked, components).placements["transformer"]
            amount = placement.prefetch if knob == "prefetch" else placement.resident
            assert amount is not None
            assert amount.layers is not None
            assert 0 <= amount.layers[0] <= num_layers
            assert placement.policy == policy


def test_counts_are_for_each_stack() -> None:
    components = facts(transformer=(19, 38))
    asked = STREAMED | {"layerwise.dit": {"prefetch": 0.5, "resident": 20}}
    placement = run(asked, components).placements["transformer"]
    assert placement.prefetch == Knob("0.5", (10, 19))
    assert placement.resident == Knob("20", (19, 20))


def test_a_knob_is_printed_as_written_where_the_stacks_are_unknown() -> None:
    asked = STREAMED | {"layerwise.dit.prefetch": "50%"}
    assert run(asked, facts(transformer=None)).placements["transformer"].prefetch == Knob("50%")


def test_defaults_are_one_ahead_nothing_resident_strided_for_one_use() -> None:
    placement = run(STREAMED, ONE).placements["transformer"]
    assert placement.prefetch == Knob("1", (1,))
    assert placement.resident == Knob("0", (0,))
    assert (placement.policy, placement.lifetime) == ("strided", "use")


def test_an_amount_not_taken_to_the_letter_has_a_line() -> None:
    assert "1.9 is a count of layers; taken as 1" in notes(STREAMED | {"layerwise.dit.prefetch": 1.9}, ONE)
    assert "100 is more than there are layers; taken as all 6" in notes(STREAMED | {"layerwise.dit.resident": 100}, ONE)
    assert notes(STREAMED | {"layerwise.dit.resident": 6}, ONE) == ""


def test_words_fold_case_and_unknown_ones_name_the_nearest() -> None:
    asked = STREAMED | {"layerwise.dit": {"policy": "Leading", "resident": 2, "lifetime": "PERMANENT"}}
    placement = run(asked, ONE).placements["transformer"]
    assert (placement.policy, placement.lifetime) == ("leading", "permanent")
    assert "did you mean 'strided'?" in errors(STREAMED | {"layerwise.dit.policy": "stride"}, ONE)
    assert "choose from use, retained, permanent" in errors(STREAMED | {"layerwise.dit.lifetime": False}, ONE)


def test_an_unknown_knob_names_the_nearest() -> None:
    assert "layerwise.dit.prefetchh: unknown knob 'prefetchh'; did you mean 'prefetch'?" in errors(
        STREAMED | {"layerwise.dit.prefetchh": 1}, ONE
    )


def test_sx5_groups_and_folding_work_for_knobs_as_for_modes() -> None:
    asked = {"component_residency.DIT": "Layerwise_Offload", "layerwise.Dit.Prefetch": 2}
    assert run(asked, ONE).placements["transformer"].prefetch == Knob("2", (2,))
    legacy = {"component_residency.dit": "layerwise-offload", "layerwise-prefetch-size": "Transformer=3"}
    assert run(legacy, ONE).placements["transformer"].prefetch == Knob("3", (3,))
    group = {"component_residency.dit": "layerwise-offload", "layerwise_resident_layers": '{"dit": 3}'}
    assert run(group, ONE).placements["transformer"].resident == Knob("3", (3,))


@pytest.mark.parametrize(
    "spelling",
    [
        {"layerwise": {"dit": {"prefetch": 2, "policy": "leading", "resident": 1}}},
        {"layerwise": '{"dit": {"prefetch": 2, "policy": "leading", "resident": 1}}'},
        {"layerwise.dit": "prefetch=2,policy=leading,resident=1"},
        {"layerwise.dit": ["prefetch=2", "policy=leading", "resident=1"]},
        {"layerwise.dit.prefetch": "2", "layerwise.dit.policy": "leading", "layerwise.dit.resident": 1},
    ],
)
def test_knobs_have_one_normaliser(spelling: dict[str, object]) -> None:
    placement = run(STREAMED | spelling, ONE).placements["transformer"]
    assert (placement.prefetch, placement.policy) == (Knob("2", (2,)), "leading")


def test_amounts_are_equal_by_meaning_not_by_text() -> None:
    assert read_amount("resident", "50%") == read_amount("resident", 0.5)
    assert read_amount("prefetch", 10**400) == Amount("count", 10**400, "big")
