"""Progress as plain lines and as bars: nothing is missing, steps come at a bounded rate (US-06, the readable half)."""

import io
from pathlib import Path

import pytest
from rich.console import Console

from framework.report.lines import LogFile, PlainLines, describe
from framework.report.phrases import format_bytes, format_seconds, quote
from framework.report.progress import PipedProgress, TerminalProgress, find_progress, format_rate
from framework.runtime import events

LONG = "a cat, " * 60


class Clock:
    """Time that passes when told."""

    now = 100.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


def run_events(num_steps: int = 3) -> list[events.Event]:
    steps = [events.StepDone(0, "denoise", step, num_steps) for step in range(1, num_steps + 1)]
    return [
        events.RunStarted("digits", 1, "cpu"),
        events.ComponentLoading("vae", "layerwise-offload"),
        events.ComponentLoaded("vae", "layerwise-offload", "float32", 3 * 2**20, 0.5),
        events.RequestStarted(0, 1, LONG, (7, 8)),
        events.StageStarted(0, "denoise", "denoise", 1, 3),
        *steps,
        events.UseFinished(0, "denoise", "transformer", None, 0.1),
        events.StageFinished(0, "denoise", 12.34),
        events.OutputSaved(0, "outputs/x/video.mp4", "aa"),
        events.Note("[bold]not markup[/bold] :cat:"),
        events.RequestFinished(0, 13.0),
        events.RunFinished("failed", 14.0, "decode: out of luck"),
    ]


EXPECTED = [
    "run: pipeline digits, 1 request, device cpu",
    "loading vae: layerwise-offload",
    "loaded vae: layerwise-offload, float32, 3.0 MiB, 0.50 s",
    f"request 1 of 1: {quote(LONG)}, seed 7, 8",
    "stage 2 of 3: denoise",
    "denoise: step 1 of 3",
    "denoise: step 3 of 3",
    "denoise: done, 12.3 s",
    "saved outputs/x/video.mp4",
    "note: [bold]not markup[/bold] :cat:",
    "request 1: done, 13.0 s",
    "run failed after 14.0 s: decode: out of luck",
]


def test_the_log_has_a_line_for_everything_with_the_time(tmp_path: Path, clock: Clock) -> None:
    log = LogFile(tmp_path, clock)
    clock.now += 1.5
    for event in run_events():
        log(event)
    lines = (tmp_path / "log.txt").read_text(encoding="utf-8").splitlines()
    assert lines == [f"    1.50 s  {line}" for line in EXPECTED]


def test_the_log_can_be_read_while_the_run_goes_on(tmp_path: Path) -> None:
    log = LogFile(tmp_path)
    log(events.Note("一"))
    assert (tmp_path / "log.txt").read_text(encoding="utf-8").endswith("note: 一\n")


def test_a_closed_log_ignores_what_comes_late(tmp_path: Path) -> None:
    log = LogFile(tmp_path)
    log.write("first")
    log.close()
    log.write("late")
    assert len((tmp_path / "log.txt").read_text().splitlines()) == 1


def test_a_log_is_never_written_over(tmp_path: Path) -> None:
    LogFile(tmp_path).close()
    with pytest.raises(FileExistsError):
        LogFile(tmp_path)


def test_fast_steps_are_thinned_but_first_and_last_stay(clock: Clock) -> None:
    stream = io.StringIO()
    sink = PlainLines(stream, clock=clock)
    for step in range(1, 101):
        clock.now += 0.1
        sink(events.StepDone(0, "denoise", step, 100))
    shown = [int(line.split("step ")[1].split()[0]) for line in stream.getvalue().splitlines()]
    assert (shown[0], shown[-1]) == (1, 100)
    assert 10 <= len(shown) <= 12


def test_slow_steps_are_all_shown(clock: Clock) -> None:
    stream = io.StringIO()
    sink = PlainLines(stream, clock=clock)
    for step in range(1, 6):
        clock.now += 5
        sink(events.StepDone(0, "denoise", step, 5))
    assert len(stream.getvalue().splitlines()) == 5


def test_a_reader_that_goes_away_does_not_fail_the_run() -> None:
    class Gone(io.StringIO):
        def write(self, text: str) -> int:
            raise BrokenPipeError

    sink = PipedProgress(Gone())
    for event in run_events():
        sink(event)


def test_a_pipe_gets_plain_lines_with_a_short_prompt() -> None:
    stream = io.StringIO()
    sink = find_progress(stream)
    assert isinstance(sink, PipedProgress)
    for event in run_events():
        sink(event)
    assert LONG not in stream.getvalue()
    assert "a cat, a cat" in stream.getvalue()
    assert "\x1b" not in stream.getvalue()


def show_on_terminal(encoding: str = "utf-8") -> str:
    buffer = io.BytesIO()
    stream = io.TextIOWrapper(buffer, encoding=encoding, errors="backslashreplace")
    console = Console(
        file=stream, force_terminal=True, width=100, markup=False, emoji=False, highlight=False, soft_wrap=True
    )
    sink = TerminalProgress(console)
    for event in run_events():
        sink(event)
        if sink._progress is not None:
            sink._progress.refresh()
    sink.close()
    stream.flush()
    return buffer.getvalue().decode(encoding)


def test_a_terminal_shows_the_steps_and_a_line_for_what_is_done() -> None:
    text = show_on_terminal()
    assert "2/3" in text
    for line in EXPECTED[2], *EXPECTED[7:]:
        assert line in text


def test_a_terminal_with_a_narrow_code_page_shows_progress_too() -> None:
    assert "2/3" in show_on_terminal("cp1252")


def test_the_cursor_is_given_back_at_the_end() -> None:
    text = show_on_terminal()
    assert text.count("\x1b[?25h") >= text.count("\x1b[?25l") > 0


@pytest.mark.parametrize(
    ("size", "text"), [(0, "0 B"), (1023, "1023 B"), (1024, "1.0 KiB"), (3 * 2**30, "3.0 GiB"), (2**53, "8192.0 TiB")]
)
def test_sizes_read_in_binary_units(size: int, text: str) -> None:
    assert format_bytes(size) == text


@pytest.mark.parametrize(
    ("seconds", "text"), [(0.453, "0.45 s"), (12.34, "12.3 s"), (185, "3 min 05 s"), (7380, "2 h 03 min")]
)
def test_durations_read_in_words(seconds: float, text: str) -> None:
    assert format_seconds(seconds) == text


@pytest.mark.parametrize(("rate", "text"), [(None, ""), (0.0, ""), (3.14, "3.1 steps/s"), (0.25, "4.0 s/step")])
def test_rates_read_the_way_round_that_is_above_one(rate: float | None, text: str) -> None:
    assert format_rate(rate) == text


def test_a_quoted_prompt_stays_on_one_line() -> None:
    assert quote('a "cat"\n\x1b[31m') == r'"a \"cat\"\n\u001b[31m"'
    assert len(quote("x" * 500, limit=100)) == 102


def test_a_line_of_very_many_seeds_is_cut() -> None:
    line = describe(events.RequestStarted(0, 1, "x", tuple(range(100_000))))
    assert line is not None
    assert line.endswith("seed 0, 1, 2, 3, 4, 5, 6, 7 and 99992 more")
