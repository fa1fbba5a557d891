"""Sets of streamed layers: the vectors of the semantics report, section 3.4."""

import pytest

from framework.memory.policy import POLICIES, Knobs, streamed_layers, streamed_within


@pytest.mark.parametrize(
    ("num_layers", "num_resident", "expected"),
    [
        (50, 35, (0, 3, 7, 10, 13, 17, 20, 23, 27, 30, 33, 37, 40, 43, 47)),
        (8, 4, (0, 2, 4, 6)),
        (10, 7, (0, 3, 7)),
        (7, 6, (0,)),
        (5, 3, (0, 2)),
    ],
)
def test_strided_spreads_the_streamed_layers(num_layers: int, num_resident: int, expected: tuple[int, ...]) -> None:
    assert streamed_layers(num_layers, num_resident, "strided") == expected


def test_leading_keeps_the_first_layers() -> None:
    assert streamed_layers(8, 5, "leading") == (5, 6, 7)


@pytest.mark.parametrize("num_layers", [1, 2, 6, 32, 60])
def test_both_policies_stream_the_same_number_and_agree_at_the_ends(num_layers: int) -> None:
    for num_resident in range(num_layers + 2):
        leading, strided = (streamed_layers(num_layers, num_resident, policy) for policy in POLICIES)
        assert len(set(leading)) == len(set(strided)) == max(0, num_layers - num_resident)
        assert all(0 <= layer < num_layers for layer in leading + strided)
    assert streamed_layers(num_layers, 0, "leading") == streamed_layers(num_layers, 0, "strided")


def test_an_unknown_policy_is_refused_with_the_choices() -> None:
    with pytest.raises(ValueError, match=r"'random'; choose from leading, strided"):
        streamed_layers(4, 1, "random")


def test_bytes_keep_as_many_layers_as_fit() -> None:
    sizes = [10, 10, 40, 10]
    assert streamed_within(sizes, 20, "leading") == (2, 3)
    assert streamed_within(sizes, 60, "leading") == (3,)
    assert streamed_within(sizes, 70, "leading") == ()
    assert streamed_within(sizes, 9, "leading") == (0, 1, 2, 3)


@pytest.mark.parametrize("policy", POLICIES)
def test_more_bytes_never_keep_fewer_layers(policy: str) -> None:
    sizes = [7, 3, 12, 5, 5, 30, 1]
    counts = [len(streamed_within(sizes, budget, policy)) for budget in range(0, 70)]
    assert counts == sorted(counts, reverse=True)


def test_counts_are_per_stack_and_bytes_per_component() -> None:
    sizes = [[1] * 4, [1] * 6]
    counted = Knobs((1, 1), (2, 2), policy="leading")
    assert counted.streamed(sizes) == {2, 3, 6, 7, 8, 9}
    assert Knobs((1, 1), (0, 0), resident_bytes=5, policy="leading").streamed(sizes) == {5, 6, 7, 8, 9}


def test_the_deepest_prefetch_of_all_stacks_sizes_the_ring() -> None:
    assert Knobs((2, 5), (0, 0)).depth == 5
