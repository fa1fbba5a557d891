"""Who watches a run beside its log and record: history, trace, previews, the report. No torch at import."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from framework.errors import FrameworkError
from framework.outputs.previews import make_preview_sink
from framework.outputs.record import FILE_NAME as RECORD
from framework.report.data import ReportData
from framework.report.foretold import read_foretold
from framework.report.history import History
from framework.report.page import write_report
from framework.runtime.events import EventBus, MemorySampled, Note
from framework.spec import RunSpec
from framework.tracing.chrome import write_trace
from framework.tracing.summary import TraceSummary, describe_summary, summarize

if TYPE_CHECKING:
    from framework.tracing.tracer import Tracer


class Watchers:
    """Subscribes what the output settings ask for; `finish` writes trace and report, whatever became of the run.

    Make it after the other sinks, the record's among them; give `tracer` to `execute`.
    """

    def __init__(self, spec: RunSpec, folder: Path, bus: EventBus, command: str) -> None:
        self._spec, self._folder, self._bus, self._command = spec, folder, bus, command
        self.paths: list[Path] = []
        self.tracer = _make_tracer(spec, bus)
        self._history = History() if spec.output.report else None
        preview = make_preview_sink(spec.config, folder, bus, spec.requests)
        for sink in (self.tracer, self._history, preview):
            if sink is not None:
                bus.subscribe(sink)

    def finish(self) -> None:
        """Write what is to be written once the run is over; a report that fails is told and changes nothing else."""
        try:
            summary = self._finish_trace()
            if self._history is not None:
                self.paths.append(write_report(self._report(self._history, summary)))
        except (FrameworkError, OSError, ValueError, KeyError, TypeError) as error:
            self._bus.emit(Note(f"no report: {type(error).__name__}: {error}"))

    def _finish_trace(self) -> TraceSummary | None:
        tracer = self.tracer
        if tracer is None:
            return None
        tracer.finish()
        if not self._spec.output.trace or not tracer.spans:
            return None
        summary = summarize(tracer.spans, tracer.window, tracer.kernels, tracer.virtual)
        self.paths.append(write_trace(self._folder, tracer.spans, summary))
        self._bus.emit(Note(describe_summary(summary)))
        return summary

    def _report(self, history: History, summary: TraceSummary | None) -> ReportData:
        record: Mapping[str, Any] = json.loads((self._folder / RECORD).read_text(encoding="utf-8"))
        traced = self.tracer if summary is not None else None
        return ReportData(
            record=record,
            folder=self._folder,
            command=self._command,
            history=history,
            budget_bytes=self._budget(history),
            spans=traced.spans if traced else (),
            window=traced.window if traced else None,
            summary=summary,
        )

    def _budget(self, history: History) -> int | None:
        """The bound of device memory that the user set, in bytes; a share is one of what the device offered."""
        bound = self._spec.budget.device
        if bound is None:
            return None
        if bound.size_bytes is not None:
            return bound.size_bytes
        seen: list[MemorySampled] = [moment.memory for moment in history.moments]
        return max((sample.capacity_bytes or 0 for sample in seen), default=0) or None


def _make_tracer(spec: RunSpec, bus: EventBus) -> "Tracer | None":
    ranges = bool((spec.config.get("log") or {}).get("nvtx"))
    if not (spec.output.trace or ranges):
        return None
    from framework.tracing.tracer import Tracer

    return Tracer(bus, keeps=spec.output.trace, ranges=ranges)


def log_level(spec: RunSpec) -> str:
    """Return `log.level`; info where nobody said one."""
    return str((spec.config.get("log") or {}).get("level") or "info")


def planned_peak(spec: RunSpec) -> int | None:
    """Return the device peak that the run's plan foretells, in bytes."""
    foretold = read_foretold(spec.plan) if spec.plan is not None else None
    return foretold.peak_bytes if foretold is not None else None
