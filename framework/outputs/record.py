"""Keeps record.json, schema 1: everything needed to understand, repeat and check one run. No torch."""

import dataclasses
import json
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from framework.errors import OutputError
from framework.outputs.atomic import atomic_path
from framework.outputs.json_text import to_json
from framework.outputs.machine import host_memory, installed_versions, machine_facts
from framework.outputs.redact import redact, redact_text
from framework.runtime import events
from framework.spec import RunSpec

SCHEMA = 1
FILE_NAME = "record.json"
STATUSES = ("done", "failed", "refused", "interrupted")
UNFINISHED = "interrupted"  # what a record says while its run lasts, so that it is true even after a kill


class RecordSink:
    """A sink of run events that keeps `record.json` current: at the start, around each request and at the end.

    `measure_memory` returns figures in bytes after each request; the default is the peak of host memory.
    """

    def __init__(
        self,
        folder: Path | None,
        spec: RunSpec,
        measure_memory: Callable[[], Mapping[str, int]] = host_memory,
        earlier: Mapping[str, Any] | None = None,
    ) -> None:
        """`folder` None: nothing is written. `earlier` is the record of the run that is continued here."""
        self.path = (folder or Path()) / FILE_NAME
        self._folder, self._is_kept = folder or Path(), folder is not None
        self._measure_memory = measure_memory
        self._requests: dict[int, dict[str, Any]] = {}
        self._record = _new_record(spec)
        self._placements = {entry["component"]: entry for entry in self._record["plan"]["placements"]}
        self._prompts = [request.prompt for request in spec.requests]
        if earlier is not None:
            self._continue(earlier)
        self._write()

    def __call__(self, event: events.Event) -> None:
        match event:
            case events.RunStarted(device=device):
                self._record["plan"]["device"] = device
            case events.ComponentLoaded(component=component):
                self._load_of(component).update(dtype=event.dtype, size_bytes=event.size_bytes, seconds=event.seconds)
            case events.Note(text=text):
                self._record["plan"]["notes"].append(redact_text(text))
                if self.finished:  # said after the run, such as a comparison with an earlier one
                    self._write()
            case events.RequestStarted():
                self._request(event.index).update(prompt=event.prompt, seed=list(event.seeds))
                self._write()  # a seed that was drawn outlives a kill
            case events.StageFinished():
                timings = self._timings(event.request)
                _add(timings["stages"], event.stage, event.seconds)
                if event.device_seconds is not None:  # a simulated device's own time
                    _add(timings.setdefault("device", {}), event.stage, event.device_seconds)
            case events.UseFinished():
                _add(self._timings(event.request)["components"], event.component, event.seconds)
            case events.OutputSaved():
                output, entry = self._output(event), self._request(event.request)
                entry["outputs"] = [*(one for one in entry["outputs"] if one["path"] != output["path"]), output]
            case events.ArtifactSaved():
                self._keep(event)
            case events.ArtifactDropped():
                entry = self._request(event.request)
                inside = self._inside(event.path)
                entry["artifacts"] = [kept for kept in entry["artifacts"] if kept["path"] != inside]
            case events.MemoryMeasured():
                self._request(event.request)["memory"].update(
                    device_peak_bytes=event.device_peak_bytes,
                    moved_bytes=event.moved_bytes,
                    loose_bytes=event.loose_bytes,
                )
            case events.PlanMade():
                self._put_plan(event)
            case events.PlanChecked():
                self._request(event.request)["expected"] = event.stages
            case events.RequestFinished():
                self._finish_request(event)
            case events.RunFinished(status=status, error=error):
                self.finish(status, error)

    @property
    def finished(self) -> bool:
        """Whether the record says how the run ended."""
        return self._record["ended"] is not None

    def content(self) -> dict[str, Any]:
        """Return the record as it is now, a copy of plain data."""
        content: dict[str, Any] = json.loads(to_json(self._current()))
        return content

    def finish(self, status: str, error: str | None = None) -> None:
        """Close the record; for a run that ends without `RunFinished`, such as one refused before it starts."""
        assert status in STATUSES, status
        self._record.update(status=status, error=None if error is None else redact_text(error), ended=_now())
        self._write()

    def _continue(self, earlier: Mapping[str, Any]) -> None:
        """Take over what an earlier process has done; requests that it did not finish keep seed and artifacts."""
        self._record["started"] = earlier.get("started") or self._record["started"]
        self._record["resumed"] = [*(earlier.get("resumed") or ()), _now()]
        for index, entry in enumerate(earlier["requests"]):
            own = self._request(index)
            own.update((key, value) for key, value in entry.items() if key in own and _alike(value, own[key]))
            own["artifacts"] = [kept for kept in own["artifacts"] if self._exists(kept)]

    def _exists(self, kept: Any) -> bool:
        path = kept.get("path") if isinstance(kept, dict) else None
        return isinstance(path, str) and (self._folder / path).is_file()

    def _keep(self, event: events.ArtifactSaved) -> None:
        entry = self._request(event.request)
        inside = self._inside(event.path)
        described = {"stage": event.stage, "step": event.step, "path": inside, "sha256": event.sha256}
        others = [kept for kept in entry["artifacts"] if kept["path"] != inside]
        entry["artifacts"] = [*others, {**described, "size_bytes": event.size_bytes}]
        self._write()

    def _put_plan(self, event: events.PlanMade) -> None:
        """What was left to the planner is decided: what had been written down of it is out of date."""
        plan = self._record["plan"]
        plan["forecast"], plan["placements"] = redact(event.plan), redact(list(event.placements))
        self._placements = {entry["component"]: entry for entry in plan["placements"]}
        self._record["config"]["numerics"] = {
            **(self._record["config"].get("numerics") or {}),
            "vae_tiling": event.plan["vae_tiling"],  # so that a repetition makes the same picture elsewhere
        }

    def _finish_request(self, event: events.RequestFinished) -> None:
        self._timings(event.index)["total"] = round(event.seconds, 6)
        self._request(event.index)["memory"].update(self._measure_memory())
        self._write()

    def _request(self, index: int) -> dict[str, Any]:
        if index not in self._requests:
            prompt = self._prompts[index] if index < len(self._prompts) else None
            timings: dict[str, Any] = {"stages": {}, "components": {}, "total": None}
            self._requests[index] = {"prompt": prompt, "seed": None, "timings": timings, "outputs": []}
            self._requests[index] |= {"artifacts": [], "memory": {}}
        return self._requests[index]

    def _timings(self, index: int) -> dict[str, Any]:
        timings: dict[str, Any] = self._request(index)["timings"]
        return timings

    def _load_of(self, component: str) -> dict[str, Any]:
        if component not in self._placements:  # loaded without a placement: a helper such as a tokenizer
            self._placements[component] = {"component": component}
            self._record["plan"]["placements"].append(self._placements[component])
        load: dict[str, Any] = self._placements[component].setdefault("loaded", {})
        return load

    def _output(self, event: events.OutputSaved) -> dict[str, Any]:
        return {"path": self._inside(event.path), "sha256": event.sha256, "frames_sha256": event.frames_sha256}

    def _inside(self, text: str) -> str:
        """Return a path as seen from the run folder, where it is inside."""
        path = Path(text)
        return path.relative_to(self._folder).as_posix() if path.is_relative_to(self._folder) else text

    def _current(self) -> dict[str, Any]:
        self._record["requests"] = [self._requests[index] for index in sorted(self._requests)]
        return self._record

    def _write(self) -> None:
        if not self._is_kept:
            return
        try:
            with atomic_path(self.path) as partial:
                partial.write_text(to_json(self._current(), indent=1) + "\n", encoding="utf-8", newline="\n")
        except OSError as error:
            raise OutputError(f"cannot write {self.path}: {error}") from error


def _new_record(spec: RunSpec) -> dict[str, Any]:
    placements = [dataclasses.asdict(placement) for placement in spec.placements.values()]
    plan = {"device": spec.device, "placements": redact(placements), "notes": redact(spec.notes)}
    provenance = {key: dataclasses.asdict(origin) for key, origin in spec.provenance.items()}
    return {
        "schema": SCHEMA,
        "status": UNFINISHED,
        "error": None,
        "started": _now(),
        "ended": None,
        "config": redact(spec.config),
        "provenance": _redact_origins(provenance),
        "plan": plan,
        "versions": installed_versions(),
        "machine": machine_facts(),
        "requests": [],
    }


def _redact_origins(provenance: Mapping[str, Mapping[str, str]]) -> dict[str, dict[str, str]]:
    """Origins quote the command line: mask what they quote by the name of their own key too."""
    shown = {}
    for key, origin in provenance.items():
        name, _, quoted = origin["where"].partition("=")
        masked = redact({key.rpartition(".")[2]: quoted})
        value = next(iter(masked.values()))
        shown[key] = {"layer": origin["layer"], "where": f"{name}={redact_text(value)}" if quoted else name}
    return shown


def _alike(value: Any, own: Any) -> bool:
    return own is None or isinstance(value, type(own))


def _add(timings: dict[str, float], name: str, seconds: float) -> None:
    timings[name] = round(timings.get(name, 0.0) + seconds, 6)


def _now() -> str:
    """UTC to the microsecond, ISO 8601."""
    return datetime.now(UTC).isoformat()
