"""The bench of overlapped copies: a small run of it holds, and rows that do not are told."""

from bench.overlap_sim import faults, measure, recurrence
from framework.platforms.sim.backend import install


def test_the_streamer_keeps_the_time_of_the_recurrence() -> None:
    install()
    for name, hardware in (("unet", "rtx_4090"), ("wan", "rtx_3060_12gb")):
        assert faults(measure(name, hardware, depth=1, passes=2)) == []


def test_what_passes_through_the_staging_buffers_runs_beside_compute_too() -> None:
    install()
    row = measure("qwen", "rtx_4090", depth=1, passes=2, pinned=False)
    assert faults(row) == []
    assert float(row["streamed_s"]) < 0.6 * (float(row["compute_s"]) + float(row["copy_s"]))


def test_the_recurrence_waits_for_a_free_slot_and_for_the_copy() -> None:
    assert recurrence([1.0] * 4, [1.0] * 4, slots=2) == 4.0
    assert recurrence([1.0] * 4, [3.0] * 4, slots=1) == 13.0
    assert recurrence([1.0] * 4, [3.0] * 4, slots=2) == 8.0


def test_a_row_that_misses_is_told() -> None:
    good = {"streamed_s": 1.0, "recurrence_s": 1.0, "resident_s": 1.0, "compute_s": 1.0, "copy_s": 0.5}
    good |= {"covered": True, "pinned": True}
    assert faults(good) == []
    assert "the recurrence" in faults({**good, "streamed_s": 1.04, "covered": False})[0]
    assert "compute covers" in faults({**good, "streamed_s": 1.02})[0]
    assert "faster" in faults({**good, "streamed_s": 0.9})[0]
