"""What a trace says in one line: what was copied, how much of it was hidden, what compute waited for. No torch."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from framework.report.phrases import format_bytes, format_exact
from framework.tracing.spans import (
    COMPUTE,
    COPY,
    STALL,
    WAIT,
    WORK,
    Interval,
    Span,
    clipped,
    overlap,
    total,
    union,
)

MAX_CAUSES = 3  # named in the line
LOADING = "loading"


@dataclass(frozen=True, slots=True, kw_only=True)
class TraceSummary:
    """Figures of the time in which requests were served; bytes and seconds. Shares are 0 to 1, None for 0 of 0.

    `hidden_share`: of the time in which something was copied, how much nobody waited for it. `stalls`: seconds that
    compute waited, by cause: the component whose copy it waited for. `host_s`: the device had nothing to do, and no
    copy was what it waited for: launches, or the host's own work. `loaded_bytes` came before the first request.
    `virtual`: exact times of a simulated device.
    """

    seconds: float
    compute_s: float
    copied_bytes: int
    copy_s: float
    hidden_share: float | None
    idle_bus_share: float | None
    host_s: float
    loaded_bytes: int = 0
    stalls: Mapping[str, float] = field(default_factory=dict)
    virtual: bool = False

    @property
    def stall_s(self) -> float:
        return sum(self.stalls.values())

    @property
    def stall_share(self) -> float | None:
        return self.stall_s / self.seconds if self.seconds else None


def summarize(
    spans: Sequence[Span],
    window: Interval | None,
    kernels: Sequence[Interval] | None = None,
    virtual: bool = False,
) -> TraceSummary:
    """Return the figures of `spans` inside `window`; `kernels` is when the device computed, where that is known."""
    window = window or _extent(spans)
    moves = [span for span in spans if span.track == COPY]
    inside = [span for span in moves if window[0] <= span.start_s < window[1]]
    copying = clipped(union(_intervals(moves)), window)
    work = kernels if kernels is not None else _intervals(s for s in spans if s.track == COMPUTE and s.kind == WORK)
    computing = clipped(union(work), window)
    waits = [span for span in spans if span.kind in (STALL, WAIT)]
    waiting = clipped(union(_intervals(waits)), window)
    stalls: dict[str, float] = {}
    for span in spans:
        if span.kind == STALL and span.track == COMPUTE and window[0] <= span.start_s < window[1]:
            cause = span.component or "values"
            stalls[cause] = stalls.get(cause, 0.0) + span.seconds
    explained = union([*computing, *clipped(union(_intervals(s for s in spans if s.kind == STALL)), window)])
    seconds, copy_s = window[1] - window[0], total(copying)
    return TraceSummary(
        seconds=seconds,
        compute_s=total(computing),
        copied_bytes=sum(span.size_bytes or 0 for span in inside),
        copy_s=copy_s,
        hidden_share=1 - overlap(copying, waiting) / copy_s if copy_s else None,
        idle_bus_share=1 - copy_s / seconds if seconds else None,
        host_s=max(0.0, seconds - total(explained)),
        loaded_bytes=sum(span.size_bytes or 0 for span in moves if span.start_s < window[0]),
        stalls=dict(sorted(stalls.items(), key=lambda entry: -entry[1])),
        virtual=virtual,
    )


def describe_summary(summary: TraceSummary) -> str:
    """Return the one line."""
    kind = "virtual " if summary.virtual else ""
    parts = [f"{kind}{format_exact(summary.seconds)}, of which computing {_share(summary.compute_s, summary)}"]
    if summary.copied_bytes:
        hidden = "" if summary.hidden_share is None else f", {_percent(summary.hidden_share)} hidden"
        parts.append(f"copied {format_bytes(summary.copied_bytes)} in {format_exact(summary.copy_s)}{hidden}")
    else:
        parts.append("nothing copied")
    causes = [f"{name} {format_exact(seconds)}" for name, seconds in list(summary.stalls.items())[:MAX_CAUSES]]
    more = len(summary.stalls) - MAX_CAUSES
    causes += [f"{more} more"] if more > 0 else []
    parts.append(f"stalls {format_exact(summary.stall_s)}" + (f" ({', '.join(causes)})" if causes else ""))
    parts.append(f"host {format_exact(summary.host_s)}")
    if summary.idle_bus_share is not None:
        parts.append(f"bus idle {_percent(summary.idle_bus_share)}")
    return "trace: " + "; ".join(parts)


def _share(seconds: float, summary: TraceSummary) -> str:
    return _percent(seconds / summary.seconds) if summary.seconds else "0 %"


def _percent(share: float) -> str:
    return f"{100 * share:.0f} %"


def _intervals(spans: Iterable[Span]) -> list[Interval]:
    return [(span.start_s, span.end_s) for span in spans]


def _extent(spans: Sequence[Span]) -> Interval:
    if not spans:
        return (0.0, 0.0)
    return (min(span.start_s for span in spans), max(span.end_s for span in spans))
