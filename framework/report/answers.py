"""The four questions that a report answers first, in sentences: time, memory, what would help, what ran. No torch."""

from collections.abc import Iterator

from framework.report.data import ReportData
from framework.report.phrases import format_bytes, format_seconds

WORTH_SAYING = 0.03  # a share of the time below which nothing would be gained


def where_was_the_time(data: ReportData) -> Iterator[str]:
    """Yield sentences about loading, the longest stage and what bound it."""
    stages, loading = data.stage_seconds(), sum(data.load_seconds().values())
    whole = sum(stages.values())
    if not stages:
        yield "No stage ended, so nothing was measured."
        return
    name, seconds = max(stages.items(), key=lambda entry: entry[1])
    share = seconds / whole if whole else 1.0
    yield f"{format_seconds(whole)} in stages; {name} took {format_seconds(seconds)} of it ({share:.0%})."
    steps = data.history.steps.get(name, [])
    if len(steps) > 2:
        each = (steps[-1] - steps[0]) / (len(steps) - 1)
        yield f"A step of {name} took {format_seconds(each)}."
    yield f"Loading took {format_seconds(loading)}."
    if data.summary is not None and data.summary.seconds:
        of = data.summary
        clock = "on the simulated device " if of.virtual else ""
        yield (
            f"Of {format_seconds(of.seconds)} {clock}it computed {of.compute_s / of.seconds:.0%}, waited for copies "
            f"{of.stall_s / of.seconds:.0%} and had nothing launched {of.host_s / of.seconds:.0%}."
        )


def where_was_the_memory(data: ReportData) -> Iterator[str]:
    """Yield sentences about peaks, their bound and the largest component."""
    peak, host = data.peak_bytes(), data.host_peak_bytes()
    if peak is not None:
        bound = f" of a budget of {format_bytes(data.budget_bytes)}" if data.budget_bytes else ""
        yield f"The device held {format_bytes(peak)} at most{bound}."
    elif data.requests:
        yield "This device shares the host's memory."
    largest: dict[str, int] = {}
    for moment in data.history.moments:
        for name, size in moment.memory.weights.items():
            largest[name] = max(largest.get(name, 0), size)
    if largest:
        names = sorted(largest, key=lambda name: -largest[name])[:3]
        yield "Most of the weights: " + ", ".join(f"{name} {format_bytes(largest[name])}" for name in names) + "."
    foretold = data.foretold
    if foretold is not None and foretold.peak_bytes is not None:
        yield f"The plan expected {format_bytes(foretold.peak_bytes)} on the device."
    if host is not None:
        yield f"The process took {format_bytes(host)} of the host's memory at most."


def what_would_make_it_faster(data: ReportData) -> Iterator[str]:
    """Yield advice that the measurements support, the largest gain first; one sentence where there is none."""
    found = sorted(_advice(data), key=lambda entry: -entry[0])
    for _, sentence in found:
        yield sentence
    for line in (data.foretold.alternatives if data.foretold else ())[:3]:
        yield f"The plan's next best: {line}"
    if not found and data.summary is None:
        yield "Run once with --trace to see what compute waited for."
    elif not found:
        yield "Nothing waited for copies: only less work (fewer steps, a smaller picture) or a faster device helps."


def _advice(data: ReportData) -> Iterator[tuple[float, str]]:
    whole = sum(data.stage_seconds().values())
    loading = sum(data.load_seconds().values())
    modes = {entry["component"]: entry.get("mode") for entry in data.plan.get("placements") or ()}
    summary = data.summary
    if summary is not None and summary.seconds:
        for name, seconds in summary.stalls.items():
            if seconds / summary.seconds > WORTH_SAYING:
                yield seconds / summary.seconds, _stall_advice(name, modes.get(name), seconds / summary.seconds)
        if summary.host_s / summary.seconds > 0.3 and summary.compute_s:
            share = summary.host_s / summary.seconds
            yield (
                0.5 * share,
                f"The device had nothing launched for {share:.0%} of the time: the work is small for it; "
                "more outputs in one request (request.num_outputs) cost little more.",
            )
    if loading > whole * 0.5 and loading > 1:
        yield (
            loading / (loading + whole),
            f"Loading took {format_seconds(loading)} beside {format_seconds(whole)} of work: several requests in one "
            "run (requests=@FILE) load once.",
        )


def _stall_advice(name: str, mode: str | None, share: float) -> str:
    waits = f"Compute waited for {name} {share:.0%} of the time"
    if mode == "layerwise-offload":
        return f"{waits}: keep layers on the device (layerwise.{name}.resident) or fetch more ahead (.prefetch)."
    if mode == "component-offload":
        return f"{waits}, which comes whole: component_residency.{name}=resident if it fits."
    return f"{waits}."


def what_ran(data: ReportData) -> Iterator[str]:
    """Yield what identifies the run."""
    record, config = data.record, data.record.get("config") or {}
    pipeline, versions = config.get("pipeline") or {}, record.get("versions") or {}
    model = (pipeline.get("model") or {}).get("source")
    revision = (pipeline.get("model") or {}).get("revision")
    yield f"{pipeline.get('name')} with the weights of {model}{f' at {revision}' if revision else ''}."
    seeds = [str(seed) for request in data.requests for seed in request.get("seed") or ()]
    if seeds:
        more = f" and {len(seeds) - 8} more" if len(seeds) > 8 else ""
        yield f"{'Seed' if len(seeds) == 1 else 'Seeds'} {', '.join(seeds[:8])}{more}."
    yield f"On {data.plan.get('device')}, with torch {versions.get('torch')} and diffusers {versions.get('diffusers')}."
