"""The contact sheet of a sweep: a small picture or clip of each job inside the page. No torch."""

import base64
import io
from pathlib import Path
from urllib.parse import quote as url_quote

from framework.report.markup import Html, empty, join, tag
from framework.report.pictures import MAX_ALL_BYTES, SMALL, TYPES
from framework.report.sweep_data import JobData, SweepData

THUMB = 384  # pixels of the longer side
MAX_CLIP_BYTES = 2**18  # a longer clip stands beside the page, its sheet within
MAX_AS_IT_IS_BYTES = 2**16
MAX_PICTURES = 4  # of one job


def cards(data: SweepData, classes: dict[str, str]) -> Html:
    """Return a card for each job; what all pictures take together is bounded."""
    left = MAX_ALL_BYTES
    figures = []
    for job in data.jobs:
        shown, used = _pictures(data.folder, job, left)
        left -= used
        heading = tag("a", f"job {job.number}", href=f"{job.name}/{_first_file(job)}")
        values = ", ".join(f"{key}={value}" for key, value in job.values.items())
        caption = tag("figcaption", heading, " ", tag("span", job.status, class_=f"status {job.status}"), " ", values)
        figures.append(tag("figure", shown, caption, class_=classes[job.name], id=job.name, tabindex="-1"))
    return tag("div", join(figures), class_="cards")


def _first_file(job: JobData) -> str:
    """Where a click on a job leads: its own report, else its record, else its folder."""
    return next((name for name in ("report.html", "record.json", "log.txt") if name in job.files), "")


def _pictures(folder: Path, job: JobData, left: int) -> tuple[Html, int]:
    parts, used = [], 0
    for output in _chosen(folder, job)[:MAX_PICTURES]:
        part, size = _picture(folder, f"{job.name}/{output}", job.title, left - used)
        used += size
        if part is not None:
            parts.append(part)
    if not parts:
        return tag("div", "no picture" if job.status == "done" else job.status, class_="none dim"), used
    return tag("div", join(parts)), used


def _chosen(folder: Path, job: JobData) -> list[str]:
    """Clips where they are small, and in place of a long one the sheet of its frames; a sheet alone is none."""
    pictures = [name for name in job.outputs if TYPES.get(Path(name).suffix.lower(), "").startswith("image/")]
    clips = [name for name in job.outputs if TYPES.get(Path(name).suffix.lower(), "").startswith("video/")]
    if clips and all(_size(folder / job.name / name) <= MAX_CLIP_BYTES for name in clips):
        return clips
    return pictures or clips


def _picture(folder: Path, inside: str, title: str, left: int) -> tuple[Html | None, int]:
    path, link = folder / inside, url_quote(inside)
    kind = TYPES[path.suffix.lower()]
    size = _size(path)
    if size == 0:
        return None, 0
    if kind.startswith("video/"):
        fits = size <= min(MAX_CLIP_BYTES, left)
        source = _inline(kind, path.read_bytes()) if fits else link
        return _clip(source, title, pixel=size < 2**16), size if fits else 0
    found = _small(path, kind)
    if found is None or len(found[1]) > left:
        return tag("a", empty("img", src=link, alt=title, loading="lazy"), href=link), 0
    kind, content, pixel = found
    picture = empty("img", src=_inline(kind, content), alt=title, class_="pixel" if pixel else None)
    return tag("a", picture, href=link), len(content)


def _clip(source: str, title: str, pixel: bool) -> Html:
    class_ = "pixel" if pixel else None
    return tag("video", src=source, controls="", loop="", muted="", playsinline="", aria_label=title, class_=class_)


def _small(path: Path, kind: str) -> tuple[str, bytes, bool] | None:
    """A picture small enough for the page, its type, and whether its pixels are to be seen; None: unreadable."""
    try:
        from PIL import Image

        with Image.open(path) as picture:
            pixel = max(picture.size) <= SMALL
            if path.stat().st_size <= MAX_AS_IT_IS_BYTES:
                return kind, path.read_bytes(), pixel
            picture.thumbnail((THUMB, THUMB))
            buffer = io.BytesIO()
            picture.convert("RGB").save(buffer, "JPEG", quality=82)
            return "image/jpeg", buffer.getvalue(), pixel
    except Exception:  # a picture that cannot be read is linked, not shown
        return None


def _inline(kind: str, content: bytes) -> str:
    return f"data:{kind};base64,{base64.b64encode(content).decode()}"


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:
        return 0
