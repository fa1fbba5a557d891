"""The frame of every page: head, way to the results, list of parts; no script, nothing from elsewhere. No torch."""

from collections.abc import Callable, Sequence
from pathlib import Path

from framework.errors import OutputError
from framework.outputs.atomic import atomic_path
from framework.report.markup import Html, empty, join, section, tag
from framework.report.style import STYLE

FILE_NAME = "report.html"
POLICY = "default-src 'none'; style-src 'unsafe-inline'; img-src 'self' data: file:; media-src 'self' data: file:"
Part = tuple[str, str, Html]
"""Identifier, title and content of one part of a page."""


def write_page(folder: Path, build: Callable[[], str]) -> Path:
    """Write what `build` returns as the page of `folder` and return its path. Raises `OutputError`."""
    path = folder / FILE_NAME
    try:
        with atomic_path(path) as partial:
            partial.write_text(build(), encoding="utf-8", newline="\n")
    except OSError as error:
        raise OutputError(f"cannot write {path}: {error}") from error
    return path


def document(title: str, header: Html, parts: Sequence[Part], style: str = "") -> str:
    """Return a page of `parts`, one of which has the identifier `results`; `style` is added to that of all pages."""
    links = join(tag("a", name, href=f"#{key}") for key, name, _ in parts)
    body = [
        tag("a", "To the results", href="#results", class_="skip"),
        header,
        tag("nav", links, aria_label="Parts of this report"),
        tag("main", join(section(key, name, content) for key, name, content in parts)),
    ]
    head = [
        empty("meta", charset="utf-8"),
        empty("meta", name="viewport", content="width=device-width, initial-scale=1"),
        empty("meta", http_equiv="Content-Security-Policy", content=POLICY),
        empty("meta", name="color-scheme", content="light dark"),
        tag("title", title),
        tag("style", Html(STYLE + style)),
    ]
    return "<!doctype html>\n" + tag("html", tag("head", *head), tag("body", *body), lang="en") + "\n"
