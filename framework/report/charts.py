"""Bars, areas over time and lanes as HTML and SVG without a script; labels stay text and never shrink. No torch."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from framework.report.markup import Html, empty, join, tag
from framework.report.style import color

WIDTH, HEIGHT = 1000, 300
MAX_RECTS = 1200  # in one lane; neighbours of one colour are drawn as one beyond
MIN_WIDTH = 0.5


@dataclass(frozen=True, slots=True)
class Bar:
    """One row; `predicted` is drawn beside what was measured, None where nothing was."""

    name: str
    measured: float | None
    predicted: float | None
    shown: str
    number: int = 0


@dataclass(frozen=True, slots=True)
class Block:
    """One rectangle of a lane, in any unit that the lane's ends have too."""

    start: float
    end: float
    fill: str
    title: str


def bars(rows: Sequence[Bar]) -> Html:
    """Return horizontal bars, all to one scale; a dashed one is predicted."""
    largest = max((value for row in rows for value in (row.measured, row.predicted) if value), default=0.0)
    parts = []
    for row in rows:
        drawn = [
            tag("div", class_=kind, style=f"width:{100 * value / largest:.2f}%;{fill}")
            for value, kind, fill in (
                (row.measured, "bar", f"background:{color(row.number)}"),
                (row.predicted, "bar ghost", ""),
            )
            if value and largest
        ]
        parts += [
            tag("div", row.name, class_="name"),
            tag("div", join(drawn), class_="track"),
            tag("div", row.shown, class_="value"),
        ]
    return tag("div", join(parts), class_="bars")


def stacked(
    times: Sequence[float],
    series: Mapping[str, Sequence[float]],
    fills: Mapping[str, str],
    top: float,
    lines: Sequence[tuple[str, float, str]] = (),
    label: str = "",
) -> Html:
    """Return a chart of areas on top of each other over `times`, up to `top`; `lines` are (text, value, colour).

    Texts of lines too close to be told apart stand in one place.
    """
    span = (times[-1] - times[0]) or 1.0
    across = [WIDTH * (at - times[0]) / span for at in times]
    base = [0.0] * len(times)
    shapes = []
    for name, values in series.items():
        upper = [low + value for low, value in zip(base, values, strict=True)]
        points = [*_steps(across, upper, top), *reversed(_steps(across, base, top))]
        shapes.append(tag("polygon", tag("title", name), points=" ".join(points), style=f"fill:{fills[name]}"))
        base = upper
    for text, value, stroke in lines:
        y = f"{HEIGHT * (1 - min(value, top) / top):.1f}"
        style = f"stroke:{stroke};stroke-width:2;stroke-dasharray:6 4"
        shapes.append(tag("line", tag("title", text), x1=0, x2=WIDTH, y1=y, y2=y, style=style,
                          vector_effect="non-scaling-stroke"))  # fmt: skip
    labels = [
        tag(
            "span",
            text,
            class_="y",
            style=f"top:{min(88.0, max(1.0, 100 * (1 - min(value, top) / top))):.1f}%;color:{stroke}",
        )
        for text, value, stroke in _apart(lines, top)
    ]
    return tag("div", _svg(shapes, HEIGHT, label), join(labels), class_="chart")


def lane(blocks: Sequence[Block], start: float, end: float, label: str) -> Html:
    """Return one track of rectangles between `start` and `end`."""
    scale = WIDTH / ((end - start) or 1.0)
    shapes = []
    for block in _fewer(blocks, (end - start) / MAX_RECTS):
        x = max(0.0, (block.start - start) * scale)
        width = max(MIN_WIDTH, (min(block.end, end) - max(block.start, start)) * scale)
        shapes.append(
            tag(
                "rect",
                tag("title", block.title),
                x=f"{x:.2f}",
                y=10,
                width=f"{width:.2f}",
                height=80,
                style=f"fill:{block.fill}",
            )
        )
    return _svg(shapes, 100, label)


def legend(entries: Sequence[tuple[str, str]]) -> Html:
    """Return (colour, text) as a list."""
    items = (tag("li", empty("i", style=f"background:{fill}"), Html("</i>"), text) for fill, text in entries)
    return tag("ul", join(items), class_="legend")


def _svg(shapes: Sequence[Html], height: int, label: str) -> Html:
    return tag("svg", tag("title", label), join(shapes), viewBox=f"0 0 {WIDTH} {height}", preserveAspectRatio="none",
               role="img", aria_label=label)  # fmt: skip


def _apart(lines: Sequence[tuple[str, float, str]], top: float) -> list[tuple[str, float, str]]:
    """Put texts whose places would overlap into one."""
    joined: list[tuple[str, float, str]] = []
    for text, value, stroke in sorted(lines, key=lambda line: line[1]):
        if joined and value - joined[-1][1] < 0.09 * top:
            joined[-1] = (f"{joined[-1][0]}, {text}", value, stroke)
        else:
            joined.append((text, value, stroke))
    return joined


def _steps(across: Sequence[float], values: Sequence[float], top: float) -> list[str]:
    """Each value holds until the next one is known."""
    points = []
    for index, (x, value) in enumerate(zip(across, values, strict=True)):
        y = HEIGHT * (1 - min(value, top) / top)
        points.append(f"{x:.1f},{y:.1f}")
        if index + 1 < len(across):
            points.append(f"{across[index + 1]:.1f},{y:.1f}")
    return points


def _fewer(blocks: Sequence[Block], resolution: float) -> list[Block]:
    """Draw neighbours of one colour as one where there are more than anybody could see."""
    if len(blocks) <= MAX_RECTS:
        return list(blocks)
    merged: list[Block] = []
    for block in blocks:
        last = merged[-1] if merged else None
        if last is not None and last.fill == block.fill and block.start - last.end < resolution:
            title = last.title.partition(" to ")[0] + f" to {block.title}"
            merged[-1] = Block(last.start, block.end, last.fill, title)
        else:
            merged.append(block)
    return merged
