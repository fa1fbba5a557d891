"""What kept results say of each bench's goals, as (goal, holds, by how much). No torch."""

from collections.abc import Callable, Iterator, Mapping
from typing import Any, TypeAlias

from bench.load_memory import SLACK_BYTES

Goal: TypeAlias = tuple[str, bool, str]


def goals(name: str, found: Any) -> list[Goal]:
    """Return the goals of bench `name`; empty where it has none."""
    return list(READERS[name](found)) if name in READERS else []


def _hook_overhead(found: Mapping[str, Any]) -> Iterator[Goal]:
    cost = found["microseconds_per_layer"]
    for peer, goal in (("diffusers group offload", 15), ("accelerate offload", 60)):
        ratio = cost[peer] / cost["ours"]
        yield f"host time a layer: 1/{goal} of {peer}", ratio >= goal, f"1/{ratio:.0f}"


def _overlap(found: list[Mapping[str, Any]]) -> Iterator[Goal]:
    worst = max(row["streamed_s"] / row["recurrence_s"] for row in found)
    yield "a streamed pass takes at most 1.03 x the recurrence", worst <= 1.03, f"{worst:.3f} at most"
    covered = [row["streamed_s"] / row["resident_s"] for row in found if row["covered"]]
    if covered:
        text = f"{max(covered):.3f} at most"
        yield "at most 1.01 x resident where compute covers the copies", max(covered) <= 1.01, text


def _load_memory(found: Mapping[str, Any]) -> Iterator[Goal]:
    """The interpreter grows by itself while it loads; of a tier that holds little that would be most of the ratio."""
    rows = found["variants"].items()
    grown = {
        name: max(0, row["peak_bytes"] - SLACK_BYTES) / row["held_bytes"] for name, row in rows if row["held_bytes"]
    }
    worst = max(grown, key=lambda name: grown[name])
    mib = SLACK_BYTES // 1024**2
    text = f"{grown[worst]:.2f} at most, {mib} MiB of the interpreter's own apart"
    yield "loading peaks at most 1.1 x what its tier holds", grown[worst] <= 1.1, text


def _sweep(found: Mapping[str, Any]) -> Iterator[Goal]:
    share = found["share"]
    yield "a sweep takes at most 0.35 of separate runs", share <= 0.35, f"{share:.2f}"


def _trace(found: Mapping[str, Any]) -> Iterator[Goal]:
    yield "tracing takes less than 1 % of a short layer", found["share"] < found["goal"], f"{found['share']:.2%}"


def _events(found: Mapping[str, Any]) -> Iterator[Goal]:
    cost = found["nobody"]
    yield "an event that nobody hears costs less than 1000 ns", cost < found["goal_ns"], f"{cost:.0f} ns"


def _scaling(found: Mapping[str, Any]) -> Iterator[Goal]:
    wrong = [f"{row['series']}: {row['exponent']:.2f}" for row in found["series"] if not row["holds"]]
    highest = max(row["exponent"] for row in found["series"] if row["holds"])
    text = "; ".join(wrong) or f"{len(found['series'])} series, exponent {highest:.2f} at most"
    yield "nothing in the engine grows faster than linear", not wrong, text


def _peers(found: list[Mapping[str, Any]]) -> Iterator[Goal]:
    for number, goal in enumerate(found[0]["goals"]):
        counted = [case["goals"][number]["holds"] for case in found]
        met, total = counted.count(True), len(counted) - counted.count(None)
        yield goal["goal"], met == total, f"in {met} of {total} cases"


READERS: Mapping[str, Callable[[Any], Iterator[Goal]]] = {
    "hook_overhead": _hook_overhead,
    "peers_sim": _peers,
    "overlap_sim": _overlap,
    "scaling": _scaling,
    "load_memory": _load_memory,
    "sweep": _sweep,
    "trace_overhead": _trace,
    "events": _events,
}
