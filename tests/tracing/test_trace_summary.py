"""The arithmetic of intervals and what a summary makes of spans. No torch."""

import json
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from framework.tracing.chrome import write_trace
from framework.tracing.spans import COMPUTE, COPY, MOVE, STAGES, STALL, USES, WORK, Span, clipped, overlap, total, union
from framework.tracing.summary import describe_summary, summarize

PAIRS = st.tuples(st.integers(0, 40), st.integers(1, 9)).map(lambda pair: (pair[0], pair[0] + pair[1]))
INTERVALS = st.lists(PAIRS, max_size=8)


def covered(intervals: list[tuple[float, float]]) -> set[int]:
    return {second for start, end in intervals for second in range(int(start), int(end))}


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(INTERVALS, INTERVALS)
def test_unions_and_overlaps_count_every_second_once(one: list[tuple[int, int]], other: list[tuple[int, int]]) -> None:
    left, right = union(one), union(other)
    assert total(left) == len(covered(left)) == len(covered(one))
    assert overlap(left, right) == len(covered(one) & covered(other))
    assert covered(clipped(left, (10, 20))) == covered(one) & set(range(10, 20))


def spans() -> list[Span]:
    """Two seconds of work with one of waiting between; two copies, the second of which compute waits for."""
    work = {"track": COMPUTE, "kind": WORK, "component": "dit"}
    move = {"track": COPY, "kind": MOVE, "component": "dit", "size_bytes": 2**20, "direction": "h2d"}
    return [
        Span(name="dit", start_s=-1.0, end_s=-0.5, **{**move, "size_bytes": 2**30}),
        Span(name="dit.0", start_s=0.0, end_s=1.0, **work),
        Span(name="dit.1", start_s=0.0, end_s=1.0, **move),
        Span(name="dit.2", start_s=1.0, end_s=2.0, **move),
        Span(track=COMPUTE, kind=STALL, name="waits for dit.2", start_s=1.0, end_s=2.0, component="dit"),
        Span(name="dit.1", start_s=2.0, end_s=3.0, **work),
        Span(track=USES, kind="use", name="dit", start_s=0.0, end_s=3.0, component="dit"),
        Span(track=STAGES, kind="stage", name="denoise", start_s=0.0, end_s=4.0),
    ]


def test_a_summary_says_what_was_hidden_and_what_was_waited_for() -> None:
    summary = summarize(spans(), (0.0, 4.0))
    assert (summary.seconds, summary.compute_s, summary.copy_s, summary.host_s) == (4.0, 2.0, 2.0, 1.0)
    assert summary.stalls == {"dit": 1.0}
    assert summary.hidden_share == 0.5
    assert summary.idle_bus_share == 0.5
    assert (summary.copied_bytes, summary.loaded_bytes) == (2 * 2**20, 2**30)


def test_the_one_line_has_copies_hidden_share_stalls_by_cause_and_idle_bus() -> None:
    line = describe_summary(summarize(spans(), (0.0, 4.0)))
    assert line == (
        "trace: 4.00 s, of which computing 50 %; copied 2.0 MiB in 2.00 s, 50 % hidden; stalls 1.00 s (dit 1.00 s); "
        "host 1.00 s; bus idle 50 %"
    )


def test_nothing_at_all_is_summed_up_too() -> None:
    assert "nothing copied" in describe_summary(summarize([], None))


def test_a_chrome_trace_names_its_tracks_and_counts_in_microseconds(tmp_path: Path) -> None:
    path = write_trace(tmp_path, spans(), summarize(spans(), (0.0, 4.0)))
    events = json.loads(path.read_text(encoding="utf-8"))["traceEvents"]
    names = {event["tid"]: event["args"]["name"] for event in events if event["name"] == "thread_name"}
    assert set(names.values()) == {"stages", "compute", "copy", "reader", "host", "use of dit"}
    moves = [event for event in events if names.get(event["tid"]) == "copy" and event["ph"] == "X"]
    assert [event["args"]["bytes"] for event in moves] == [2**30, 2**20, 2**20]
    assert moves[1]["dur"] == pytest.approx(1e6)
