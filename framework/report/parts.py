"""The parts of the report that show figures: time, memory, layers, plan, warnings and environment. No torch."""

import json
from collections.abc import Iterator, Sequence

from framework.report.charts import Bar, Block, bars, lane, legend, stacked
from framework.report.data import ReportData
from framework.report.foretold import Foretold
from framework.report.markup import Html, fold, join, table, tag
from framework.report.phrases import format_bytes, format_exact, format_seconds
from framework.report.style import NUM_COLORS, color
from framework.tracing.spans import COMPUTE, COPY, HOST, READER, STAGES, STALL, Interval, Span

STALL_FILL = "var(--bad)"
MAX_HEADROOM = 3.0  # a line above that many times the peak is drawn at the upper edge, saying its value
REST = "activations and the rest"


def time_bars(data: ReportData) -> Html:
    """Return a bar for loading and for each stage; dashed is what the plan predicted."""
    measured = {"loading": sum(data.load_seconds().values()), **data.stage_seconds()}
    foretold, virtual = data.foretold, data.virtual_stage_seconds()
    if virtual:
        measured = virtual
    elif data.simulated:
        foretold = None
    expected: dict[str, float | None] = {}
    times = max(1, len(data.requests))
    if foretold is not None:
        expected |= {} if virtual else {"loading": foretold.load_s}
        for name, stage in foretold.stages.items():
            expected[name] = None if stage.seconds is None else stage.seconds * times
    rows = []
    for number, name in enumerate(dict.fromkeys([*measured, *expected])):
        has, will = measured.get(name), expected.get(name)
        told = format_exact if virtual else format_seconds
        shown = "-" if has is None else told(has)
        shown += f" (plan {told(will)}{_bound(foretold, name)})" if will is not None else ""
        rows.append(Bar(name, has, will, shown, number))
    note = _time_note(data, any(value is not None for value in expected.values()))
    return join([bars(rows), tag("p", note, class_="dim small")])


def _bound(foretold: Foretold | None, name: str) -> str:
    stage = foretold.stages.get(name) if foretold is not None else None
    return f", bound by {stage.bound_by}" if stage is not None and stage.bound_by else ""


def _time_note(data: ReportData, predicted: bool) -> str:
    clock = ""
    if data.simulated:
        clock = "Virtual times of the simulated device. " if data.virtual_stage_seconds() else (
            "Seconds of this process; --trace gives those of the simulated device, which a plan predicts. "
        )  # fmt: skip
    if predicted:
        return f"{clock}Dashed: what the plan predicted."
    return (
        clock
        if data.foretold is not None
        else f"{clock}No prediction: this run had no plan (residency=auto makes one)."
    )


def memory_chart(data: ReportData) -> Html:
    """Return weights by component, and the rest of what the device holds, over the seconds of the run."""
    moments = data.history.moments
    if len(moments) < 2:
        return tag("p", "No use began, so nothing was measured.", class_="dim")
    times = [moment.at_s for moment in moments]
    names = list(dict.fromkeys(name for moment in moments for name in moment.memory.weights))
    largest = {name: max(moment.memory.weights.get(name, 0) for moment in moments) for name in names}
    names.sort(key=lambda name: -largest[name])
    series = {name: [float(moment.memory.weights.get(name, 0)) for moment in moments] for name in names}
    sums = [sum(moment.memory.weights.values()) for moment in moments]
    held = [moment.memory.device_bytes for moment in moments]
    if data.on_device:
        series[REST] = [float(max(0, (total or 0) - known)) for total, known in zip(held, sums, strict=True)]
    peak, foretold = data.peak_bytes(), data.foretold
    top = max(float(peak or 0), *(float(sum(row)) for row in zip(*series.values(), strict=True)), 1.0)
    lines = _memory_lines(data, peak, foretold.peak_bytes if foretold else None, top)
    top = max(top, *(min(value, MAX_HEADROOM * top) for _, value, _ in lines), top) * 1.05
    fills = {**_fills(data), REST: "var(--ghost)"}
    entries = [(fills[name], _entry(name, series[name])) for name in series]
    return join(
        [
            stacked(times, series, fills, top, lines, "device memory over time, by component"),
            _axis(times[0], times[-1], "seconds of the process"),
            legend(entries),
            tag("p", _memory_note(data), class_="dim small"),
        ]
    )


def _fills(data: ReportData) -> dict[str, str]:
    """One colour for each component, the same in every picture."""
    names = [entry["component"] for entry in data.plan.get("placements") or ()]
    names += [name for moment in data.history.moments for name in moment.memory.weights]
    names += [span.component for span in data.spans if span.component is not None]
    return {name: color(number) for number, name in enumerate(dict.fromkeys(names))}


def _memory_lines(data: ReportData, peak: int | None, planned: int | None, top: float) -> list[tuple[str, float, str]]:
    """The budget, or the device's end where it is near, with what was planned and the peak."""
    lines = [] if peak is None else [(f"peak {format_bytes(peak)}", float(peak), "var(--fg)")]
    if planned is not None:
        lines.append((f"planned {format_bytes(planned)}", float(planned), "var(--accent)"))
    if data.budget_bytes is not None:
        lines.append((f"budget {format_bytes(data.budget_bytes)}", float(data.budget_bytes), "var(--bad)"))
    else:
        capacity = max((moment.memory.capacity_bytes or 0 for moment in data.history.moments), default=0)
        if capacity and capacity < 4 * top:
            lines.append((f"device {format_bytes(capacity)}", float(capacity), "var(--bad)"))
    return lines


def _memory_note(data: ReportData) -> str:
    if not data.on_device:
        return "This device shares the host's memory; shown are the weights."
    capacity = max((moment.memory.capacity_bytes or 0 for moment in data.history.moments), default=0)
    limit = "budget" if data.budget_bytes is not None else "device"
    note = f"The {limit} has room for {format_bytes(capacity)}. Measured between steps"
    return f"{note}; the peak within a step is the line."


def _entry(name: str, values: Sequence[float]) -> str:
    return f"{name}, at most {format_bytes(int(max(values)))}"


def layer_timeline(data: ReportData) -> Html:
    """Return the tracks of the trace: the whole of it, and one step from close by."""
    if data.summary is None or not data.spans:
        return tag("p", "Run with --trace to see each layer, each copy and each wait.", class_="dim")
    whole = data.window or (0.0, max(span.end_s for span in data.spans))
    colors, owners = _fills(data), _owners(data.spans)[:NUM_COLORS]
    fills = {name: colors[name] for name in owners}
    parts = [tag("h3", f"All requests, {format_exact(whole[1] - whole[0])}"), _lanes(data.spans, whole, fills)]
    step = _one_step(data.spans)
    if step is not None:
        title = f"{step.stage}, {step.name}: {format_exact(step.seconds)}"
        parts += [tag("h3", title), _lanes(data.spans, (step.start_s, step.end_s), fills)]
    entries = [(fill, name) for name, fill in fills.items()] + [(STALL_FILL, "waiting for a copy")]
    return join([*parts, legend(entries), fold("The longest layers and waits", _slowest(data.spans))])


def _lanes(spans: Sequence[Span], window: Interval, fills: dict[str, str]) -> Html:
    parts = []
    for track in (COMPUTE, COPY, READER, HOST):
        found = [span for span in spans if span.track == track and span.end_s > window[0] and span.start_s < window[1]]
        if found:
            blocks = [_block(span, fills) for span in found]
            parts += [tag("div", track), lane(blocks, *window, f"{track} track")]
    return join([tag("div", join(parts), class_="lanes"), _axis(0.0, window[1] - window[0], "")])


def _block(span: Span, fills: dict[str, str]) -> Block:
    size = f", {format_bytes(span.size_bytes)}" if span.size_bytes else ""
    fill = STALL_FILL if span.kind == STALL else fills.get(span.component or "", "var(--ghost)")
    return Block(span.start_s, span.end_s, fill, f"{span.name}: {format_exact(span.seconds)}{size}")


def _owners(spans: Sequence[Span]) -> list[str]:
    """Components, the longest at work first."""
    seconds: dict[str, float] = {}
    for span in spans:
        if span.component is not None and span.track in (COMPUTE, COPY):
            seconds[span.component] = seconds.get(span.component, 0.0) + span.seconds
    return sorted(seconds, key=lambda name: -seconds[name])


def _one_step(spans: Sequence[Span]) -> Span | None:
    """A step from the middle: neither the first, which is special, nor the last."""
    steps = [span for span in spans if span.track == STAGES and span.kind == "step"]
    return steps[len(steps) // 2] if steps else None


def _slowest(spans: Sequence[Span]) -> Html:
    work: dict[tuple[str, str], tuple[float, int, int]] = {}
    for span in spans:
        if span.track in (COMPUTE, COPY):
            seconds, count, size = work.get((span.kind, span.name), (0.0, 0, 0))
            work[span.kind, span.name] = (seconds + span.seconds, count + 1, size + (span.size_bytes or 0))
    rows = [
        (kind, name, format_exact(seconds), count, format_bytes(size) if size else "")
        for (kind, name), (seconds, count, size) in sorted(work.items(), key=lambda item: -item[1][0])[:20]
    ]
    return table(("kind", "what", "time", "times", "bytes"), rows)


def plan_table(data: ReportData) -> Html:
    """Return every component with its mode and knobs, and the trail of reasons below."""
    rows, trails = [], []
    for entry in data.plan.get("placements") or ():
        loaded = entry.get("loaded") or {}
        size = format_bytes(loaded["size_bytes"]) if loaded.get("size_bytes") is not None else ""
        rows.append((entry["component"], entry.get("mode") or "", _knobs(entry), size, loaded.get("dtype") or ""))
        trails += [_reason(entry["component"], reason) for reason in entry.get("reasons") or ()]
    parts = [table(("component", "mode", "knobs", "weights", "dtype"), rows, "Where each component lived")]
    parts += [tag("p", line) for line in (data.foretold.reasons if data.foretold else ())]
    moved = data.moved_bytes()
    if moved:
        parts.append(table(("component", "copied"), [(name, format_bytes(size)) for name, size in moved.items()],
                           "Weights that travelled while requests were served"))  # fmt: skip
    head = ("component", "what", "value", "from", "key", "")
    return join([*parts, fold("Why: every value that was considered", table(head, trails))])


def _knobs(entry: dict[str, object]) -> str:
    said = []
    for name in ("prefetch", "resident", "policy", "lifetime", "tier"):
        value = entry.get(name)
        if isinstance(value, dict):
            value = value.get("written")
        if value is not None:
            said.append(f"{name} {value}")
    return ", ".join(said)


def _reason(component: str, reason: dict[str, object]) -> tuple[object, ...]:
    origin = reason.get("origin")
    where = origin.get("where") if isinstance(origin, dict) else origin
    note = str(reason.get("note") or ("" if reason.get("won") else "did not win"))
    return (component, reason.get("subject"), reason.get("value"), where, reason.get("key"), note)


def warnings(data: ReportData) -> Html:
    """Return the lines that the run said beside its progress, and its error."""
    notes = [tag("li", note) for note in data.plan.get("notes") or ()]
    error = data.record.get("error")
    parts = [tag("p", error, class_="error")] if error else []
    parts.append(tag("ul", join(notes), class_="notes") if notes else tag("p", "None.", class_="dim"))
    return join(parts)


def exact_command(data: ReportData) -> Html:
    """Return what repeats the run, and the whole config behind it."""
    config = json.dumps(data.record.get("config"), indent=1, ensure_ascii=False, sort_keys=True)
    return join(
        [
            tag("p", "As it was asked for:"),
            tag("pre", data.command, tabindex="0"),
            tag("p", "Exactly this again, seeds included, from the folder above this one:"),
            tag("pre", f"python -m framework run --from {data.folder.name}", tabindex="0"),
            fold("The whole config, as it was composed", tag("pre", config, tabindex="0")),
        ]
    )


def environment(data: ReportData) -> Html:
    """Return versions and machine."""
    versions, machine = data.record.get("versions") or {}, data.record.get("machine") or {}
    rows = [(name, value) for name, value in versions.items() if value is not None]
    facts = [(name, _fact(name, value)) for name, value in machine.items() if value is not None]
    hardware = (data.record.get("config") or {}).get("hardware") or {}
    facts += [("hardware profile", hardware["name"])] if hardware.get("name") else []
    return join([table(("package", "version"), rows), table(("machine", ""), facts)])


def _fact(name: str, value: object) -> object:
    return format_bytes(value) if name.endswith("_bytes") and isinstance(value, int) else value


def _axis(start: float, end: float, label: str) -> Html:
    return tag(
        "div", tag("span", format_exact(start)), tag("span", label), tag("span", format_exact(end)), class_="axis"
    )


def trail(lines: Iterator[str]) -> Html:
    """Return sentences as paragraphs."""
    return join(tag("p", line) for line in lines)
