"""Puts the report of a run together: one file, no script, nothing loaded from elsewhere. No torch."""

from pathlib import Path

from framework.report import answers, parts, pictures
from framework.report.data import ReportData
from framework.report.document import Part, document, write_page
from framework.report.markup import Html, join, tag
from framework.tracing.summary import describe_summary

QUESTIONS = (
    ("Where was the time?", answers.where_was_the_time),
    ("Where was the memory?", answers.where_was_the_memory),
    ("What would make it faster?", answers.what_would_make_it_faster),
    ("What exactly ran?", answers.what_ran),
)


def write_report(data: ReportData) -> Path:
    """Write `report.html` into the run folder and return its path. Raises `OutputError`."""
    return write_page(data.folder, lambda: build_report(data))


def build_report(data: ReportData) -> str:
    """Return the page."""
    return document(f"{_pipeline(data)}: {data.record.get('status')}", _head(data), _sections(data))


def _sections(data: ReportData) -> list[Part]:
    questions = [
        tag("div", tag("h3", question), parts.trail(answer(data)), id=question.split()[-1].strip("?"))
        for question, answer in QUESTIONS
    ]
    shown = [
        ("answers", "In short", tag("div", join(questions), class_="answers")),
        ("results", "Results", pictures.results(data)),
        ("time", "Time by stage", parts.time_bars(data)),
        ("memory", "Memory over time", parts.memory_chart(data)),
        ("layers", "Layers and copies", _layers(data)),
        ("plan", "Where the weights lived", parts.plan_table(data)),
        ("warnings", "Notes and warnings", parts.warnings(data)),
        ("command", "The exact command", parts.exact_command(data)),
        ("environment", "Environment", parts.environment(data)),
    ]
    if data.history.previews:
        shown.insert(2, ("previews", "From inside the loop", pictures.previews(data)))
    return shown


def _layers(data: ReportData) -> Html:
    line = tag("p", describe_summary(data.summary)) if data.summary is not None else Html()
    return join([line, parts.layer_timeline(data)])


def _head(data: ReportData) -> Html:
    record = data.record
    status = str(record.get("status"))
    prompts = [str(request.get("prompt")) for request in data.requests]
    first = shorten(prompts[0]) if prompts else "no request was reached"
    more = f" and {len(prompts) - 1} more" if len(prompts) > 1 else ""
    return tag(
        "header",
        tag("h1", _pipeline(data), " ", tag("span", status, class_=f"status {status}")),
        tag("p", first, more),
        tag("p", f"{record.get('started')} to {record.get('ended')}, folder {data.folder.name}", class_="dim small"),
    )


def shorten(prompt: str, limit: int = 200) -> str:
    return prompt if len(prompt) <= limit else prompt[: limit - 3] + "..."


def _pipeline(data: ReportData) -> str:
    return str(((data.record.get("config") or {}).get("pipeline") or {}).get("name"))
