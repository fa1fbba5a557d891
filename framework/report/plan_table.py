"""A plan as lines for a terminal, from its plain data. No torch."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from framework.report.phrases import format_seconds

COLUMNS = ("stage", "component", "mode and knobs", "peak", "host", "pinned", "file", "time", "bound by")
PARTS = 3  # of a peak in a line; --json has them all

Describe = Callable[[Mapping[str, Any]], str]


def plan_rows(data: Mapping[str, Any], describe: Describe) -> list[tuple[str, ...]]:
    """Return a row for each stage, and one below it for each further component; `describe` words a placement."""
    rows: list[tuple[str, ...]] = [("load", *[""] * 6, format_seconds(data["load_s"]), "")]
    for stage in data["stages"]:
        for number, name in enumerate(stage["components"] or [""]):
            placed = data["components"].get(name)
            own = (stage["stage"] if number == 0 else "", name, describe(placed) if placed else "")
            rows.append((*own, *(_figures(stage) if number == 0 else [""] * 6)))
    return rows


def peak_lines(data: Mapping[str, Any]) -> Iterator[str]:
    """What the peak of each stage is made of."""
    width = max(len(stage["stage"]) for stage in data["stages"])
    for stage in data["stages"]:
        yield f"{stage['stage']:<{width}}  {_size(stage['device_peak_bytes'])} = {parts_line(stage['parts'])}"


def _figures(stage: Mapping[str, Any]) -> tuple[str, ...]:
    sizes = [_size(stage[key]) for key in ("device_peak_bytes", "host_bytes", "pinned_bytes", "mapped_bytes")]
    return (*sizes, format_seconds(stage["seconds"]), stage["bound_by"])


def parts_line(parts: Mapping[str, int], count: int = PARTS) -> str:
    """The largest parts of a peak, largest first, and how much all others are together."""
    ordered = sorted(parts.items(), key=lambda part: (-part[1], part[0]))
    shown = [f"{name} {_size(size)}" for name, size in ordered[:count]]
    rest = sum(size for _, size in ordered[count:])
    return " + ".join([*shown, *([f"others {_size(rest)}"] if rest else [])])


def summary_lines(data: Mapping[str, Any]) -> Iterator[str]:
    """What the whole run comes to."""
    peak = max(data["stages"], key=lambda stage: stage["device_peak_bytes"])
    yield (
        f"peak {_size(data['peak_bytes'])} of {_size(data['device_bytes'])} of device memory, in {peak['stage']}; "
        f"host {_size(data['host_bytes'])} of {_size(data['available_host_bytes'])}, "
        f"{_size(data['pinned_bytes'])} of it pinned; {_size(data['disk_bytes'])} read from disk"
    )
    slowest = max(data["stages"], key=lambda stage: stage["seconds"])
    yield (
        f"time {format_seconds(data['seconds'])}: {format_seconds(data['load_s'])} to load from a cold disk, then "
        f"{format_seconds(data['seconds'] - data['load_s'])} for a request, most of it in {slowest['stage']}, "
        f"bound by {slowest['bound_by']}"
    )
    if data["unknown"]:
        yield f"not counted, for nobody knows their size: {', '.join(data['unknown'])}"
    if not data["exact"]:
        yield "the work is reckoned from configs and sheets: figures may be some per cent off"


def why_lines(data: Mapping[str, Any], component: str, alternatives: Sequence[str]) -> Iterator[str]:
    """Why a component is where it is, what it takes in each stage, and what was nearest to that."""
    own = data["components"][component]
    yield own["reason"] or f"{component}: {own['mode']}, as the config says"
    yield (
        f"  size: {_size(own['size_bytes'])} in {own['dtype']}, from {own['source']}"
        if own["size_bytes"]
        else ("  size: nobody knows it")
    )
    for stage in data["stages"]:
        parts = {name: size for name, size in stage["parts"].items() if _is_of(name, component)}
        if parts:
            yield f"  in {stage['stage']}: {parts_line(parts, len(parts))}"
    for line in alternatives:
        yield f"  instead: {line}"


def _is_of(part: str, component: str) -> bool:
    """Whether a part of a peak is a component's own, or a ring that it has a share in."""
    ring = part.removeprefix("ring of ").split(" and ") if part.startswith("ring of ") else ()
    return part.startswith(f"{component} ") or component in ring


def _size(size_bytes: float) -> str:
    """GB of 10^9, as the planner's sentences have them."""
    if not size_bytes:
        return "-"
    return f"{size_bytes / 1e9:.1f} GB" if size_bytes >= 5e7 else f"{size_bytes / 1e6:.1f} MB"
