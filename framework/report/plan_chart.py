"""A plan as a picture: when each stage runs, and what its peak of device memory is made of. SVG, no torch."""

from collections.abc import Iterator, Mapping, Sequence
from html import escape
from typing import Any

from framework.report.phrases import format_seconds

CHARTS = (".svg", ".html")
WIDTH, LEFT, RIGHT = 960, 150, 24  # pixels; labels stand left of the plot
ROW, GAP, TOP = 26, 10, 56
BUSY = {"compute": "#2f6f9f", "copy": "#d9822b", "stall": "#c9c9c9"}
COLOURS = ("#2f6f9f", "#d9822b", "#5b8c5a", "#9b5aa5", "#b3423a", "#4aa3a2", "#8a7a3c", "#7a7a7a")
INK, LIMIT = "#222222", "#b3423a"
PAGE = "<!doctype html>\n<html lang=en><meta charset=utf-8><title>{title}</title>\n<body>\n{svg}\n</body></html>\n"


def draw(data: Mapping[str, Any], title: str, *, html: bool = False) -> str:
    """Return the chart of a plan's plain data as SVG, or as a page that holds it."""
    stages = data["stages"]
    memory_top = TOP + (len(stages) + 1) * (ROW + GAP) + 50
    height = memory_top + len(stages) * (ROW + GAP) + 70 + 16 * len(_part_names(stages))
    shapes = [
        _text(LEFT, 20, f"{title} on {data['hardware']}", size=15),
        *_timeline(data, TOP),
        *_memory(data, memory_top),
    ]
    svg = (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" width="{WIDTH}" height="{height}" '
        f'font-family="sans-serif" font-size="12" fill="{INK}" role="img" '
        f'aria-label="{escape(f"plan of {title}", quote=True)}">\n' + "\n".join(shapes) + "\n</svg>\n"
    )
    return PAGE.format(title=escape(title), svg=svg) if html else svg


def _timeline(data: Mapping[str, Any], top: int) -> Iterator[str]:
    """A row for loading and for each stage: its time, and within it how long compute and copies are busy."""
    total = data["seconds"] or 1.0
    scale = (WIDTH - LEFT - RIGHT) / total
    yield _text(LEFT, top - 14, f"time, {format_seconds(data['seconds'])} in all")
    at, y = 0.0, top
    rows = [("load", data["load_s"], {}), *((stage["stage"], stage["seconds"], stage) for stage in data["stages"])]
    for name, seconds, stage in rows:
        yield _text(LEFT - 8, y + 17, name, anchor="end")
        x, width = LEFT + at * scale, max(1.0, seconds * scale)
        yield _rect(x, y, width, ROW, BUSY["stall"], f"{name}: {format_seconds(seconds)}")
        for number, kind in enumerate(("compute", "copy")):
            busy = min(stage.get(f"{kind}_s", 0.0), seconds)
            if busy:
                label = f"{name}, {kind}: {format_seconds(busy)}"
                yield _rect(x, y + number * ROW / 2, max(1.0, busy * scale), ROW / 2, BUSY[kind], label)
        at, y = at + seconds, y + ROW + GAP
    for number, (kind, colour) in enumerate(BUSY.items()):
        yield _rect(LEFT + number * 110, y, 12, 12, colour, kind)
        yield _text(LEFT + number * 110 + 18, y + 10, {"copy": "copies", "stall": "waiting"}.get(kind, kind))


def _memory(data: Mapping[str, Any], top: int) -> Iterator[str]:
    """A row for each stage: its peak by parts, and a line at what the device has."""
    stages = data["stages"]
    most = max([data["device_bytes"], *(stage["device_peak_bytes"] for stage in stages)]) or 1
    scale = (WIDTH - LEFT - RIGHT) / most
    colours = {name: COLOURS[number % len(COLOURS)] for number, name in enumerate(_part_names(stages))}
    yield _text(LEFT, top - 14, f"peak of device memory, {_size(data['peak_bytes'])} of {_size(data['device_bytes'])}")
    y = top
    for stage in stages:
        yield _text(LEFT - 8, y + 17, stage["stage"], anchor="end")
        x = float(LEFT)
        for name, size in stage["parts"].items():
            yield _rect(x, y, size * scale, ROW, colours[name], f"{stage['stage']}, {name}: {_size(size)}")
            x += size * scale
        y += ROW + GAP
    limit = LEFT + data["device_bytes"] * scale
    yield f'<line x1="{limit:.1f}" x2="{limit:.1f}" y1="{top - 6}" y2="{y}" stroke="{LIMIT}" stroke-dasharray="4 3"/>'
    for number, (name, colour) in enumerate(colours.items()):
        yield _rect(LEFT, y + 8 + number * 16, 12, 12, colour, name)
        yield _text(LEFT + 18, y + 18 + number * 16, name)


def _part_names(stages: Sequence[Mapping[str, Any]]) -> list[str]:
    """Parts of all stages, those that take most first."""
    most: dict[str, int] = {}
    for stage in stages:
        for name, size in stage["parts"].items():
            most[name] = max(size, most.get(name, 0))
    return sorted(most, key=lambda name: (-most[name], name))


def _rect(x: float, y: float, width: float, height: float, colour: str, title: str) -> str:
    return (
        f'<rect x="{x:.1f}" y="{y:.1f}" width="{width:.1f}" height="{height:.1f}" fill="{colour}">'
        f"<title>{escape(title)}</title></rect>"
    )


def _text(x: float, y: float, text: str, *, anchor: str = "start", size: int = 12) -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" font-size="{size}">{escape(text)}</text>'


def _size(size_bytes: float) -> str:
    return f"{size_bytes / 1e9:.1f} GB" if size_bytes >= 5e7 else f"{size_bytes / 1e6:.1f} MB"
