"""What is predicted from the calls heard so far."""

from collections.abc import Sequence

from framework.memory.order import CallOrder


def order(num_layers: int = 4, size: int = 2, streamed: Sequence[int] | None = None) -> CallOrder:
    return CallOrder(range(num_layers), range(num_layers) if streamed is None else streamed, size)


def run(calls: CallOrder, *passes: Sequence[int]) -> list[tuple[int, ...]]:
    """Call the layers of each pass; return the window after every call."""
    windows = []
    for layers in passes:
        calls.start_pass()
        for layer in layers:
            calls.call(layer)
            windows.append(calls.window)
        calls.finish_pass()
    return windows


def misses(calls: CallOrder, *passes: Sequence[int]) -> int:
    """How many calls were not the first of the window before them."""
    missed = 0
    for layers in passes:
        calls.start_pass()
        for layer in layers:
            missed += layer != (calls.window or (None,))[0]
            calls.call(layer)
        calls.finish_pass()
    return missed


def test_the_declared_order_comes_first_and_wraps_into_the_next_pass() -> None:
    calls = order()
    assert calls.window == (0, 1)
    assert run(calls, [0, 1, 2, 3]) == [(1, 2), (2, 3), (3, 0), (0, 1)]


def test_residents_are_never_in_the_window() -> None:
    assert run(order(streamed=[1, 3]), [0, 1, 2, 3]) == [(1, 3), (3, 1), (3, 1), (1, 3)]


def test_a_reverse_order_is_learned_in_one_pass() -> None:
    calls = order()
    assert misses(calls, [3, 2, 1, 0]) > 0
    assert misses(calls, [3, 2, 1, 0], [3, 2, 1, 0]) == 0


def test_a_skip_moves_on_to_where_the_call_is() -> None:
    calls = order(6)
    calls.start_pass()
    calls.call(0)
    calls.call(4)
    assert calls.window == (5, 0)


def test_a_layer_called_twice_is_two_occurrences() -> None:
    calls = order()
    run(calls, [0, 1, 0, 2])
    assert misses(calls, [0, 1, 0, 2], [0, 1, 0, 2]) == 0


def test_a_use_like_the_last_one_is_predicted_to_its_end() -> None:
    calls = order()
    steps = [[0, 1, 2, 3], [0, 3], [0, 1, 2, 3], [0, 3]]
    assert misses(calls, *steps) > 0
    calls.finish_use()
    assert misses(calls, *steps) == 0


def test_nothing_is_wanted_after_the_last_pass_of_a_known_use() -> None:
    calls = order()
    run(calls, [0, 1, 2, 3], [0, 1, 2, 3])
    calls.finish_use()
    windows = run(calls, [0, 1, 2, 3], [0, 1, 2, 3])
    assert windows[3] == (0, 1)
    assert windows[-2:] == [(3,), ()]


def test_a_longer_use_than_the_last_goes_on() -> None:
    calls = order()
    run(calls, [0, 1, 2, 3])
    calls.finish_use()
    run(calls, [0, 1, 2, 3])
    assert misses(calls, [0, 1, 2, 3], [0, 1, 2, 3]) == 0


def test_without_a_forward_a_pass_ends_when_its_first_layer_returns() -> None:
    calls = order(6)
    for layer in (4, 5, 4, 5):
        calls.call(layer)
    assert calls.window == (4, 5)


def test_a_layer_that_is_not_in_the_order_changes_nothing_ahead() -> None:
    calls = order()
    run(calls, [0, 1, 2])
    calls.start_pass()
    calls.call(0)
    calls.call(3)
    assert calls.window == (1, 2)


def test_a_pass_that_broke_off_teaches_nothing() -> None:
    calls = order()
    calls.start_pass()
    calls.call(0)
    assert run(calls, [0, 1, 2, 3])[-1] == (0, 1)


def test_the_rest_of_the_pass_and_the_next_lie_ahead() -> None:
    calls = order(3)
    calls.start_pass()
    calls.call(0)
    assert calls.ahead() == (1, 2, 0, 1, 2)


def test_told_of_the_last_step_it_expects_no_pass_after_it() -> None:
    calls = order()
    run(calls, [0, 1, 2, 3], [0, 1, 2, 3])
    calls.expect_steps(done=1, total=2)  # two passes in each
    assert run(calls, [0, 1, 2, 3])[-1] == (0, 1)
    assert run(calls, [0, 1, 2, 3])[1:] == [(2, 3), (3,), ()]


def test_what_is_said_of_steps_beats_the_length_of_the_last_use() -> None:
    calls = order()
    run(calls, *[[0, 1, 2, 3]] * 2)
    calls.finish_use()
    run(calls, [0, 1, 2, 3])
    calls.expect_steps(done=1, total=4)
    assert run(calls, [0, 1, 2, 3])[-1] == (0, 1)


def test_more_passes_than_were_said_are_expected_as_before() -> None:
    calls = order()
    run(calls, [0, 1, 2, 3])
    calls.expect_steps(done=1, total=2)
    run(calls, *[[0, 1, 2, 3]] * 2)
    assert run(calls, [0, 1, 2, 3])[-1] == (0, 1)


def test_a_component_that_is_not_called_in_every_step_is_left_alone() -> None:
    calls = order()
    run(calls, [0, 1, 2, 3])
    calls.expect_steps(done=2, total=4)
    assert run(calls, [0, 1, 2, 3])[-1] == (0, 1)


def test_after_a_short_use_the_order_of_a_pass_is_kept_and_their_number_forgotten() -> None:
    calls = order()
    run(calls, [3, 2, 1, 0])
    calls.finish_use()
    calls.forget_length()
    assert run(calls, [3, 2, 1, 0])[-1] == (3, 2)
