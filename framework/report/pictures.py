"""The results in the report: small ones inside it, large ones as links beside it. No torch."""

import base64
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.parse import quote as url_quote

from framework.report.data import ReportData
from framework.report.markup import Html, empty, join, tag

TYPES = {
    ".png": "image/png",
    ".jpg": "image/jpeg",
    ".webp": "image/webp",
    ".gif": "image/gif",
    ".mp4": "video/mp4",
    ".webm": "video/webm",
}
MAX_INSIDE_BYTES = 4 * 2**20  # of one file
MAX_ALL_BYTES = 24 * 2**20  # of all together, so that the report still opens
SMALL = 256  # pixels: shown as they are, not smoothed


def results(data: ReportData) -> Html:
    """Return every file that was written, by request."""
    left = MAX_ALL_BYTES
    parts = []
    for number, request in enumerate(data.requests):
        prompt = tag("p", f"{number + 1}: ", str(request.get("prompt")), class_="prompt")
        figures = []
        for output in request.get("outputs") or ():
            figure, used = _figure(data.folder, output, left)
            left -= used
            figures.append(figure)
        nothing = tag("p", "Nothing was written.", class_="dim")
        parts += [prompt, tag("div", join(figures), class_="media") if figures else nothing]
    return join(parts)


def previews(data: ReportData) -> Html:
    """Return the pictures from inside the loop, in order."""
    left = MAX_ALL_BYTES
    figures = []
    for preview in data.history.previews:
        figure, used = _figure(data.folder, {"path": preview.path}, left, f"step {preview.step}")
        left -= used
        figures.append(figure)
    return tag("div", join(figures), class_="media")


def _figure(folder: Path, output: Mapping[str, Any], left: int, caption: str | None = None) -> tuple[Html, int]:
    """Return one file as figure, and the bytes it took inside the report."""
    path = folder / str(output["path"])
    inside = path.relative_to(folder).as_posix() if path.is_relative_to(folder) else path.as_posix()
    kind = TYPES.get(path.suffix.lower())
    link = tag("a", inside, href=url_quote(inside))
    hashed = output.get("frames_sha256") or output.get("sha256")
    note = caption or (tag("span", f" frames {str(hashed)[:12]}", class_="small") if hashed else "")
    try:
        size = path.stat().st_size
    except OSError:
        return tag("figure", tag("figcaption", inside, " is not there any more")), 0
    if kind is None:
        return tag("figure", tag("figcaption", link, " ", note)), 0
    embedded = size <= min(MAX_INSIDE_BYTES, left)
    source = f"data:{kind};base64,{base64.b64encode(path.read_bytes()).decode()}" if embedded else url_quote(inside)
    if kind.startswith("video/"):
        shown = tag("video", src=source, controls="", loop="", muted="", playsinline="", aria_label=inside)
    else:
        shown = empty("img", src=source, alt=caption or inside, loading="lazy")
    class_ = "pixel" if _is_small(path) else None
    return tag("figure", shown, tag("figcaption", link, " ", note), class_=class_), size if embedded else 0


def _is_small(path: Path) -> bool:
    if path.suffix.lower() in (".mp4", ".webm"):
        return path.stat().st_size < 2**16
    try:
        from PIL import Image

        with Image.open(path) as picture:
            return max(picture.size) <= SMALL
    except Exception:  # a picture that cannot be read is shown as any other
        return False
