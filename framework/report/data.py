"""What a report is made from: the record, what happened over time, and the trace where there is one. No torch."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from framework.report.foretold import Foretold, read_foretold
from framework.report.history import History
from framework.tracing.spans import STAGES, Interval, Span
from framework.tracing.summary import TraceSummary


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportData:
    """`record` is that of a run folder; `budget_bytes` the bound of device memory that the user set, if any."""

    record: Mapping[str, Any]
    folder: Path
    command: str
    history: History = field(default_factory=History)
    budget_bytes: int | None = None
    spans: Sequence[Span] = ()
    window: Interval | None = None
    summary: TraceSummary | None = None

    @property
    def plan(self) -> Mapping[str, Any]:
        plan: Mapping[str, Any] = self.record.get("plan") or {}
        return plan

    @property
    def requests(self) -> Sequence[Mapping[str, Any]]:
        requests: Sequence[Mapping[str, Any]] = self.record.get("requests") or ()
        return requests

    @property
    def foretold(self) -> Foretold | None:
        return read_foretold(self.plan)

    @property
    def on_device(self) -> bool:
        """Whether the device has memory of its own."""
        return any(moment.memory.device_bytes is not None for moment in self.history.moments)

    def stage_seconds(self) -> dict[str, float]:
        """Return the measured seconds of every stage, over all requests."""
        found: dict[str, float] = {}
        for request in self.requests:
            for stage, seconds in request["timings"]["stages"].items():
                found[stage] = found.get(stage, 0.0) + seconds
        return found

    def virtual_stage_seconds(self) -> dict[str, float]:
        """Return the seconds of every stage on a simulated device; empty where there is none, or no trace of it."""
        found: dict[str, float] = {}
        if self.summary is not None and self.summary.virtual:
            for span in self.spans:
                if span.track == STAGES and span.kind == "stage" and span.stage is not None:
                    found[span.stage] = found.get(span.stage, 0.0) + span.seconds
        return found

    @property
    def simulated(self) -> bool:
        """Whether the run's device was a simulated one, so that the seconds of the process say nothing about it."""
        return str(self.plan.get("device")).startswith("sim")

    def load_seconds(self) -> dict[str, float]:
        """Return what loading each component took."""
        loads = {entry["component"]: entry.get("loaded") or {} for entry in self.plan.get("placements") or ()}
        return {name: load["seconds"] for name, load in loads.items() if load.get("seconds") is not None}

    def peak_bytes(self) -> int | None:
        """Return the largest peak of device memory of any request, None where the device does not tell."""
        peaks = [request["memory"].get("device_peak_bytes") for request in self.requests]
        return max((peak for peak in peaks if peak is not None), default=None)

    def host_peak_bytes(self) -> int | None:
        peaks = [request["memory"].get("host_peak_bytes") for request in self.requests]
        return max((peak for peak in peaks if peak is not None), default=None)

    def moved_bytes(self) -> dict[str, int]:
        """Return the bytes of weights copied to the device, by component, over all requests."""
        found: dict[str, int] = {}
        for request in self.requests:
            for component, ways in (request["memory"].get("moved_bytes") or {}).items():
                found[component] = found.get(component, 0) + sum(ways.values())
        return dict(sorted(found.items(), key=lambda entry: -entry[1]))
