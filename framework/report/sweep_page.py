"""Puts the report of a sweep together: one file, no script, nothing loaded from elsewhere. No torch."""

from collections.abc import Mapping, Sequence
from pathlib import Path

from framework.report import sweep_parts as parts
from framework.report.document import Part, document, write_page
from framework.report.markup import Html, join, tag
from framework.report.sweep_data import STATE, SweepData
from framework.report.sweep_pictures import cards
from framework.report.sweep_style import STYLE, filter_rules, job_classes


def write_sweep_report(data: SweepData) -> Path:
    """Write `report.html` into the folder of the sweep and return its path. Raises `OutputError`."""
    return write_page(data.folder, lambda: build_sweep_report(data))


def build_sweep_report(data: SweepData) -> str:
    """Return the page."""
    axes: dict[str, Sequence[str]] = {**data.axes, STATE: list(dict.fromkeys(job.status for job in data.jobs))}
    classes = {job.name: job_classes(axes, {**job.values, STATE: job.status}) for job in data.jobs}
    title = f"sweep {data.folder.name}: {data.counts}"
    shown = _sections(data, axes, classes)
    return document(title, _head(data), shown, STYLE + filter_rules(axes))


def _sections(data: SweepData, axes: Mapping[str, Sequence[str]], classes: dict[str, str]) -> list[Part]:
    count = tag("p", "Shown: ", tag("span", class_="count"), f" of {len(data.jobs)} jobs", class_="small dim")
    short = tag("div", join(tag("p", line) for line in parts.in_short(data)), class_="answers-text")
    return [
        ("answers", "In short", short),
        ("filters", "Show jobs with", parts.filters(axes)),
        ("results", "Results", join([cards(data, classes), count])),
        ("front", "Memory against time", parts.memory_against_time(data, classes)),
        ("foretold", "Predicted against measured", parts.foretold(data, classes)),
        ("failures", "Not done", parts.failures(data)),
        ("jobs", "All jobs", parts.all_jobs(data, classes)),
        ("command", "The command", join([tag("pre", data.command, tabindex="0"), tag("p", _resume(data))])),
    ]


def _resume(data: SweepData) -> Html:
    return join(["What is missing runs with ", tag("code", f"python -m framework sweep --dir {data.folder}")])


def _head(data: SweepData) -> Html:
    about = f"folder {data.folder.name}, started {data.created} with version {data.version}"
    return tag(
        "header", tag("h1", f"Sweep {data.folder.name}"), tag("p", data.counts), tag("p", about, class_="dim small")
    )
