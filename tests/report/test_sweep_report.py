"""The page of a sweep: any text as text, nothing from elsewhere, what is best, and filters that need no script."""

import json
import shutil
import subprocess
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from framework.report.scatter import MAX_STOPS, Axis, Dot, scatter
from framework.report.sweep_data import Figures, JobData, SweepData
from framework.report.sweep_page import build_sweep_report, write_sweep_report
from framework.report.sweep_parts import failures, in_short
from framework.report.sweep_style import MAX_VALUES, can_filter

NASTY = '</style><script>alert(1)</script><img src=x onerror=alert(1)> "quoted" \' & \ud800'
MIB = 2**20
AXES = {"prompt": [NASTY, "a nine"], "residency": ["none", "low_vram"]}
FIGURES = {(0, 0): (2.0, 30), (0, 1): (5.0, 10), (1, 0): (3.0, 40), (1, 1): (5.0, 12)}


def job(number: int, name: str, **said: Any) -> JobData:
    return JobData(number=number, name=name, device="sim:0", attempts=1, took_s=9.0, **{"status": "done", **said})


def jobs() -> list[JobData]:
    found = []
    for (prompt, residency), (seconds, peak) in FIGURES.items():
        values = {"prompt": AXES["prompt"][prompt], "residency": AXES["residency"][residency]}
        foretold = {"expected_s": seconds * 1.1, "measured_s": seconds} if residency else {}
        figures = Figures(seconds=seconds, device_peak_bytes=peak * MIB, virtual=True, **foretold)
        found.append(job(len(found) + 1, f"000{len(found) + 1}-ab", values=values, figures=figures))
    lines = ["Traceback", f"ValueError: {NASTY}"]
    values = {"prompt": "a nine", "residency": "none"}
    return [*found, job(5, "0005-ab", status="failed", values=values, error=NASTY, last_lines=lines)]


def data(folder: Path, **changes: Any) -> SweepData:
    said = {"folder": folder, "jobs": jobs(), "axes": AXES, "counts": "4 done, 1 failed", "command": f"sweep {NASTY}"}
    return SweepData(**{**said, **changes})


class Page(HTMLParser):
    """Collects tags and text."""

    def __init__(self, content: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.text = ""
        self.feed(content)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_data(self, data: str) -> None:
        self.text += data


def test_any_text_is_shown_as_text_and_nothing_is_loaded(tmp_path: Path) -> None:
    page = Page(build_sweep_report(data(tmp_path)))
    assert not {"script", "link", "iframe"} & {tag for tag, _ in page.tags}
    assert all(not name.startswith("on") for _, attributes in page.tags for name in attributes)
    links = [attributes.get(name) or "" for _, attributes in page.tags for name in ("src", "href")]
    assert not [link for link in links if link.startswith(("http", "//"))]
    assert f"ValueError: {NASTY[:30]}" in page.text
    assert "\\ud800" in page.text
    places = {attributes.get("id") for _, attributes in page.tags}
    assert {link[1:] for link in links if link.startswith("#")} <= places


def test_the_front_has_the_jobs_than_which_none_is_faster_and_smaller(tmp_path: Path) -> None:
    shown = data(tmp_path)
    assert [job.number for job in shown.front()] == [1, 2]
    said = list(in_short(shown))
    assert any(line.startswith("Fastest: job 1: ") and line.endswith("2.00 s and 30.0 MiB.") for line in said)
    assert any(line.startswith("Least memory: job 2: ") for line in said)


def test_times_of_two_clocks_are_not_compared(tmp_path: Path) -> None:
    """A second of a process says nothing beside one of a simulated device."""
    own = job(6, "0006-ab", values={}, figures=Figures(seconds=0.1, device_peak_bytes=1))
    shown = data(tmp_path, jobs=[*jobs(), own])
    assert own not in shown.front()
    assert "1 done jobs do not tell both figures." in Page(build_sweep_report(shown)).text


def test_forecasts_stand_beside_what_was_measured(tmp_path: Path) -> None:
    page = Page(build_sweep_report(data(tmp_path)))
    assert "5.50 s" in page.text
    assert "-9.1 %" in page.text
    assert "2 done jobs had no forecast." in page.text
    titles = [attributes.get("title") or "" for tag, attributes in page.tags if tag == "a"]
    assert sum("predicted 5.50 s, measured 5.00 s" in title for title in titles) == 2
    without = data(tmp_path, jobs=[job(1, "0001-ab", values={})])
    assert "No job had a forecast" in Page(build_sweep_report(without)).text


def test_failures_have_their_reason_the_end_of_their_log_and_a_link_to_it(tmp_path: Path) -> None:
    page = Page(failures(data(tmp_path)))
    assert "Traceback\nValueError" in page.text
    assert any(attributes.get("href") == "0005-ab/log.txt" for _, attributes in page.tags)
    waiting = data(tmp_path, jobs=[job(1, "0001-ab", status="pending", values={})])
    assert "It has not run." in Page(failures(waiting)).text


def test_a_sweep_without_anything_done_has_a_page(tmp_path: Path) -> None:
    shown = Page(build_sweep_report(data(tmp_path, jobs=[job(1, "0001-ab", status="refused", values={})], axes={})))
    assert "none is compared" in shown.text
    assert "No axis has values to choose from." in shown.text


def test_an_axis_of_very_many_values_has_no_filter_and_dots_no_stops(tmp_path: Path) -> None:
    values = [str(number) for number in range(MAX_VALUES + 1)]
    assert not can_filter(values)
    page = build_sweep_report(data(tmp_path, axes={"seed": values, **AXES}))
    assert "seed has too many values to choose from here." in page
    axis = Axis("x", str)
    assert 'tabindex="-1"' in scatter([Dot(1, 1, "t", "#a", "red")] * (MAX_STOPS + 1), axis, axis, "plot")
    assert "tabindex" not in scatter([Dot(1, 1, "t", "#a", "red")], axis, axis, "plot")


def with_pictures(folder: Path) -> SweepData:
    """Job 1 has a small picture, job 2 a clip that is too long for the page and the sheet of its frames."""
    listed = jobs()
    for name in ("0001-ab", "0002-ab"):
        (folder / name).mkdir()
    Image.new("RGB", (8, 8), "red").save(folder / "0001-ab" / "image.png")
    Image.effect_noise((1200, 300), 80).save(folder / "0002-ab" / "sheet.png")
    (folder / "0002-ab" / "video.mp4").write_bytes(b"0" * 300_000)
    pictures = {"0001-ab": ["image.png"], "0002-ab": ["video.mp4", "sheet.png"]}
    shown = [job(own.number, own.name, status=own.status, values=own.values, figures=own.figures, error=own.error,
                 last_lines=own.last_lines, outputs=pictures.get(own.name, ())) for own in listed]  # fmt: skip
    return data(folder, jobs=shown)


def test_pictures_are_within_the_page_and_small(tmp_path: Path) -> None:
    page = Page(build_sweep_report(with_pictures(tmp_path)))
    sources = [attributes.get("src") or "" for tag, attributes in page.tags if tag in ("img", "video")]
    assert [source.partition(",")[0] for source in sources] == ["data:image/png;base64", "data:image/jpeg;base64"]
    assert len(sources[1]) < 40_000
    assert any(attributes.get("href") == "0002-ab/sheet.png" for _, attributes in page.tags)


CHROMIUM = next((path for name in ("chromium", "google-chrome", "chrome") if (path := shutil.which(name))), None)
PROBE = """<!doctype html>
<iframe src=report.html style="width:360px;height:800px"></iframe>
<iframe src=report.html style="width:1200px;height:800px"></iframe>
<script>
onload = () => {
  const [phone, wide] = [...document.querySelectorAll('iframe')].map(frame => frame.contentDocument);
  const shown = (page, what) => [...page.querySelectorAll(what)].filter(one => one.offsetParent !== null).length;
  const all = page => [shown(page, 'figure.job'), shown(page, '.area .dot'), shown(page, 'tr.job')];
  const choose = (page, id, value) => { page.getElementById(id).value = value; };
  const found = {widths: [phone, wide].map(page => page.documentElement.scrollWidth), before: all(wide)};
  choose(wide, 'f1', '1'); found.low_vram = all(wide);
  choose(wide, 'f2', '1'); found.failed_low_vram = all(wide);
  wide.querySelector('form').reset(); found.after = all(wide);
  found.pictures = [...wide.images].every(image => image.naturalWidth > 0);
  found.line = wide.querySelector('polyline.front').getBoundingClientRect().width > 10;
  const stops = [...wide.querySelectorAll('a[href],select,input,[tabindex="0"]')].filter(one => one.tabIndex >= 0);
  stops.forEach(one => one.focus());
  found.stops = stops.length;
  found.focused = wide.activeElement === stops[stops.length - 1];
  const back = getComputedStyle(wide.body).backgroundColor, dark = matchMedia('(prefers-color-scheme:dark)').matches;
  found.fits_the_scheme = dark ? back === 'rgb(20, 23, 27)' : back === 'rgb(255, 255, 255)';
  document.body.textContent = JSON.stringify(found);
};
</script>"""


@pytest.mark.skipif(CHROMIUM is None, reason="no Chromium on this machine")
@pytest.mark.parametrize("scheme", ["light", pytest.param("dark", marks=pytest.mark.slow)])
def test_a_browser_filters_it_by_axis_on_a_phone_and_on_a_screen(tmp_path: Path, scheme: str) -> None:
    write_sweep_report(with_pictures(tmp_path))
    (tmp_path / "probe.html").write_text(PROBE, encoding="utf-8")
    words = ["--headless", "--no-sandbox", "--disable-gpu", "--allow-file-access-from-files", "--dump-dom"]
    words += [f"--user-data-dir={tmp_path / 'profile'}"] + ["--force-dark-mode"] * (scheme == "dark")
    done = subprocess.run(
        [str(CHROMIUM), *words, f"file://{tmp_path}/probe.html"], capture_output=True, text=True, timeout=60, check=True
    )
    found = json.loads(done.stdout[done.stdout.index("{") : done.stdout.rindex("}") + 1])
    assert found["widths"][0] <= 360
    assert found["widths"][1] <= 1200
    assert found["before"] == found["after"] == [5, 4 + 2, 5 + 2]  # dots of two plots, rows of two tables
    assert found["low_vram"] == [2, 2 + 2, 2 + 2]
    assert found["failed_low_vram"] == [0, 0, 0]
    assert found["pictures"]
    assert found["line"]
    assert found["focused"]
    assert found["stops"] > 20
    assert found["fits_the_scheme"]
