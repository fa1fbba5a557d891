"""Dots over two axes as HTML that needs no script: each dot is a link with a text of its own. No torch."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from framework.report.markup import Html, join, tag

MAX_STOPS = 60  # dots beyond are reached by pointer only: nobody presses a key a thousand times
HEADROOM = 1.06


@dataclass(frozen=True, slots=True)
class Dot:
    """A point that leads to `href`; `class_` may hide it, `marked` draws it larger."""

    x: float
    y: float
    title: str
    href: str
    fill: str
    class_: str = ""
    marked: bool = False


@dataclass(frozen=True, slots=True)
class Axis:
    """What is drawn along one side, and how its values read."""

    label: str
    told: Callable[[float], str]


Line = Sequence[tuple[float, float]]


def scatter(dots: Sequence[Dot], across: Axis, up: Axis, label: str, line: Line = (), alike: bool = False) -> Html:
    """Return a plot from 0 on; `line` is drawn through its points. `alike`: both axes have one scale and a diagonal."""
    right = HEADROOM * max((dot.x for dot in dots), default=0.0) or 1.0
    top = HEADROOM * max((dot.y for dot in dots), default=0.0) or 1.0
    if alike:
        right = top = max(right, top)
    lines = [_polyline([(0.0, 0.0), (right, top)], right, top, "diagonal")] if alike else []
    lines += [_polyline(line, right, top, "front")] if line else []
    stops = None if len(dots) <= MAX_STOPS else "-1"
    svg = tag("svg", join(lines), viewBox="0 0 100 100", preserveAspectRatio="none", aria_hidden="true")
    area = tag("div", svg, join(_dot(dot, right, top, stops) for dot in dots), class_="area", role="group",
               aria_label=label)  # fmt: skip
    axis = tag("div", *(tag("span", text) for text in ("0", across.label, across.told(right))), class_="axis")
    return tag("div", tag("div", f"{up.label}, up to {up.told(top)}", class_="small dim"), area, axis, class_="plot")


def _dot(dot: Dot, right: float, top: float, stop: str | None) -> Html:
    style = f"left:{100 * dot.x / right:.2f}%;bottom:{100 * dot.y / top:.2f}%;background:{dot.fill}"
    class_ = " ".join(part for part in ("dot", "marked" if dot.marked else "", dot.class_) if part)
    return tag("a", href=dot.href, title=dot.title, aria_label=dot.title, class_=class_, style=style, tabindex=stop)


def _polyline(points: Line, right: float, top: float, class_: str) -> Html:
    across = " ".join(f"{100 * x / right:.2f},{100 - 100 * y / top:.2f}" for x, y in points)
    return tag("polyline", points=across, class_=class_, vector_effect="non-scaling-stroke")
