"""The report is one page without scripts that shows any text as text and answers its four questions. No torch."""

import re
import shutil
import subprocess
from collections.abc import Mapping
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

from framework.report.data import ReportData
from framework.report.foretold import read_foretold
from framework.report.history import MAX_SAMPLES, History
from framework.report.markup import Html, tag, text
from framework.report.page import build_report, write_report
from framework.runtime import events
from framework.tracing.spans import COMPUTE, COPY, MOVE, STAGES, STALL, WORK, Span
from framework.tracing.summary import summarize

NASTY = '</script><img src=x onerror=alert(1)> "quoted" & \ud800 \x07 \u202e\n<b>'
VOID = {"meta", "img", "i", "br", "line", "rect"}
MIB = 2**20


class Page(HTMLParser):
    """Collects tags and text, and whether every element is closed in order."""

    def __init__(self) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.text = ""
        self.open: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag not in ("meta", "img"):
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text += data


def record(**changes: Any) -> dict[str, Any]:
    reason = {"subject": "mode", "value": "layerwise-offload", "origin": {"where": "preset"}, "key": "k", "won": True}
    request = {
        "prompt": NASTY,
        "seed": [7],
        "timings": {"stages": {"encode": 1.0, "denoise": 9.0}, "components": {}, "total": 10.0},
        "outputs": [],
        "memory": {"device_peak_bytes": 90 * MIB, "moved_bytes": {"dit": {"h2d": 3 * MIB}}, "host_peak_bytes": MIB},
    }
    placement = {"component": "dit", "mode": "layerwise-offload", "reasons": [reason], "prefetch": {"written": "1"}}
    plan = {"device": "sim:0", "placements": [placement], "notes": ["a note <i>"]}
    config = {"pipeline": {"name": "tiny", "model": {"source": "some/model"}}, "prompt": NASTY}
    return {
        "status": "failed",
        "error": "out of <luck>",
        "config": config,
        "plan": plan,
        "versions": {"torch": "2.13"},
        "machine": {"memory_bytes": 2**30},
        "requests": [request],
        **changes,
    }


def history() -> History:
    now = iter(range(1000))
    kept = History(clock=lambda: float(next(now)))
    for size in (10, 40, 20):
        kept(events.MemorySampled(0, (size + 5) * MIB, 100 * MIB, 2**30, {"dit": size * MIB, "vae": MIB}))
    return kept


def data(folder: Path, **changes: Any) -> ReportData:
    values = {"record": record(), "folder": folder, "command": f"run 'prompt={NASTY}'", "history": history()}
    return ReportData(**{**values, "budget_bytes": 100 * MIB, **changes})


def parsed(content: str) -> Page:
    page = Page()
    page.feed(content)
    page.close()
    assert page.open == []
    return page


def traced() -> dict[str, Any]:
    spans = [
        Span(track=STAGES, kind="step", name="step 1", start_s=0, end_s=4, stage="denoise"),
        Span(track=COMPUTE, kind=WORK, name="dit.0", start_s=0, end_s=1, component="dit"),
        Span(track=COMPUTE, kind=STALL, name="waits for dit.1", start_s=1, end_s=3, component="dit"),
        Span(track=COPY, kind=MOVE, name="dit.1", start_s=0, end_s=3, component="dit", size_bytes=MIB),
    ]
    return {"spans": spans, "window": (0.0, 4.0), "summary": summarize(spans, (0.0, 4.0))}


def test_any_text_is_shown_as_text(tmp_path: Path) -> None:
    content = build_report(data(tmp_path))
    page = parsed(content)
    assert "script" not in {tag for tag, _ in page.tags}
    assert "<script" not in content
    assert all(not name.startswith("on") for _, attributes in page.tags for name in attributes)
    assert "</script><img src=x onerror=alert(1)>" in page.text
    assert "out of <luck>" in page.text
    assert "\\ud800" in page.text
    assert "\\x07" in page.text


def test_nothing_is_loaded_from_elsewhere(tmp_path: Path) -> None:
    page = parsed(build_report(data(tmp_path, **traced())))
    for _, attributes in page.tags:
        for name in ("src", "href", "data", "srcset", "action"):
            assert not (attributes.get(name) or "").startswith(("http", "//"))
    assert any(attributes.get("http-equiv") == "Content-Security-Policy" for _, attributes in page.tags)


def test_every_link_of_the_page_has_its_place(tmp_path: Path) -> None:
    page = parsed(build_report(data(tmp_path)))
    places = {attributes.get("id") for _, attributes in page.tags}
    links = {attributes["href"] for tag, attributes in page.tags if tag == "a"}
    assert {f"#{place}" for place in places if place} >= {link for link in links if link and link.startswith("#")}


def test_the_four_questions_are_answered_from_the_figures(tmp_path: Path) -> None:
    shown = parsed(build_report(data(tmp_path, **traced()))).text
    assert "denoise took 9.00 s of it (90%)" in shown
    assert "The device held 90.0 MiB at most of a budget of 100.0 MiB" in shown
    assert "Compute waited for dit 50% of the time" in shown
    assert "layerwise.dit.resident" in shown
    assert "tiny with the weights of some/model" in shown


def test_a_budget_line_and_every_component_are_in_the_memory_chart(tmp_path: Path) -> None:
    page = parsed(build_report(data(tmp_path)))
    assert "budget 100.0 MiB" in page.text
    assert "dit, at most 40.0 MiB" in page.text
    assert "activations and the rest, at most 4.0 MiB" in page.text
    assert sum(tag == "polygon" for tag, _ in page.tags) == 3


def test_the_layer_timeline_shows_waits_and_says_how_to_get_it_where_there_is_none(tmp_path: Path) -> None:
    with_trace, without = build_report(data(tmp_path, **traced())), build_report(data(tmp_path))
    assert "waits for dit.1: 2.00 s" in with_trace
    assert "denoise, step 1: 4.00 s" in with_trace
    assert "Run with --trace" in without


@pytest.mark.parametrize(
    "stages",
    [
        [{"stage": "denoise", "seconds": 8.0, "device_peak_bytes": 80 * MIB}],
        {"denoise": {"seconds": 8.0, "peak_bytes": 80 * MIB}},
    ],
)
def test_what_a_plan_foretells_stands_beside_what_was_measured(tmp_path: Path, stages: Any) -> None:
    reasons = {"dit": {"reason": "dit streams: it is too big"}, "vae": {}}
    forecast = {"stages": stages, "load_s": 0.5, "components": reasons}
    planned = {**record()["plan"], "device": "cuda:0", "forecast": forecast}
    shown = parsed(build_report(data(tmp_path, record=record(plan=planned)))).text
    assert "9.00 s (plan 8.00 s)" in shown
    assert "planned 80.0 MiB" in shown
    assert "dit streams: it is too big" in shown


def test_on_a_simulated_device_a_plan_is_held_against_virtual_times_only(tmp_path: Path) -> None:
    stages = [{"stage": "denoise", "seconds": 3.5, "bound_by": "bus"}]
    planned = record(plan={**record()["plan"], "forecast": {"stages": stages}})
    spans = [*traced()["spans"], Span(track=STAGES, kind="stage", name="denoise", start_s=0, end_s=4, stage="denoise")]
    summary = summarize(spans, (0.0, 4.0), virtual=True)
    virtual = build_report(data(tmp_path, record=planned, spans=spans, window=(0.0, 4.0), summary=summary))
    assert "4.00 s (plan 3.50 s, bound by bus)" in virtual
    assert "(plan 3.50 s" not in build_report(data(tmp_path, record=planned))


@pytest.mark.parametrize("plan", [{}, {"stages": [None, 3, {"seconds": "x"}]}, {"forecast": {"stages": {"a": 1}}}])
def test_a_plan_of_another_kind_foretells_nothing(plan: Mapping[str, Any]) -> None:
    found = read_foretold(plan)
    assert found is None or not found.stages


def test_a_run_that_reached_nothing_has_a_report_too(tmp_path: Path) -> None:
    empty = {"status": "refused", "error": "no", "requests": [], "plan": {}, "config": {}}
    shown = parsed(build_report(ReportData(record=empty, folder=tmp_path, command="run"))).text
    assert "No stage ended" in shown


def test_small_results_are_inside_and_large_ones_beside(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from PIL import Image

    Image.new("RGB", (8, 8)).save(tmp_path / "image.png")
    (tmp_path / "odd name#.mp4").write_bytes(b"0" * 5000)
    monkeypatch.setattr("framework.report.pictures.MAX_INSIDE_BYTES", 4000)
    kept = record()
    kept["requests"][0]["outputs"] = [{"path": name} for name in ("image.png", "odd name#.mp4", "gone.png")]
    page = parsed(build_report(data(tmp_path, record=kept)))
    sources = [attributes.get("src") or "" for tag, attributes in page.tags if tag in ("img", "video")]
    assert sources[0].startswith("data:image/png;base64,")
    assert sources[1] == "odd%20name%23.mp4"
    assert "gone.png is not there any more" in page.text


def test_history_stays_small(tmp_path: Path) -> None:
    kept = History()
    for number in range(5 * MAX_SAMPLES):
        kept(events.MemorySampled(0, number, None, None, {}))
    assert len(kept.moments) <= MAX_SAMPLES
    assert kept.moments[-1].memory.device_bytes > 4 * MAX_SAMPLES  # type: ignore[operator]


def test_markup_is_escaped_once() -> None:
    assert tag("p", "<&>", Html("<b>x</b>"), title='"') == '<p title="&quot;">&lt;&amp;&gt;<b>x</b></p>'
    assert text(None) == "None"


CHROMIUM = next((path for name in ("chromium", "google-chrome", "chrome") if (path := shutil.which(name))), None)
PROBE = """<!doctype html><meta name=color-scheme content="light dark">
<iframe id=f src=report.html style="width:{width}px;height:800px"></iframe><script>
onload=()=>{{const d=document.getElementById('f').contentDocument;const r=d.documentElement;
document.title=[r.scrollWidth,d.querySelectorAll('section').length,d.querySelectorAll('a,summary,[tabindex]').length,
d.images.length&&[...d.images].every(i=>i.naturalWidth>0),getComputedStyle(d.body).backgroundColor].join(';')}}</script>"""


@pytest.mark.skipif(CHROMIUM is None, reason="no Chromium on this machine")
@pytest.mark.parametrize(("width", "scheme"), [(360, "dark"), (1200, "light")])
def test_a_browser_shows_it_without_scrolling_sideways(tmp_path: Path, width: int, scheme: str) -> None:
    from PIL import Image

    Image.new("RGB", (8, 8)).save(tmp_path / "image.png")
    kept = record()
    kept["requests"][0]["outputs"] = [{"path": "image.png"}]
    write_report(data(tmp_path, record=kept, **traced()))
    (tmp_path / "probe.html").write_text(PROBE.format(width=width), encoding="utf-8")
    words = ["--headless", "--no-sandbox", "--disable-gpu", "--allow-file-access-from-files", "--dump-dom"]
    words.append(f"--blink-settings=preferredColorScheme={0 if scheme == 'dark' else 1}")
    done = subprocess.run(
        [str(CHROMIUM), *words, f"file://{tmp_path}/probe.html"], capture_output=True, text=True, timeout=60, check=True
    )
    title = done.stdout.partition("<title>")[2].partition("</title>")[0] or done.stdout
    scroll, sections, focusable, pictures, background = title.split(";")
    assert int(scroll) <= width
    assert (int(sections), pictures) == (9, "true")
    assert int(focusable) > 10
    brightness = sum(map(int, re.findall(r"\d+", background)[:3])) / 3
    assert brightness < 60 if scheme == "dark" else brightness > 200
