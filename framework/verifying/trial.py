"""Runs one config with its results, record and log in a folder of its own, and keeps what tells it from others.

Imports torch in functions only.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from framework.errors import FrameworkError, Interrupted
from framework.graph import build_graph
from framework.outputs.hashing import config_sha256
from framework.outputs.record import RecordSink
from framework.outputs.redact import redact
from framework.report.lines import LogFile
from framework.runtime import events
from framework.spec import RunSpec
from framework.verifying.marks import Mark, Place

if TYPE_CHECKING:
    pass

RESIDENT = "resident"


@dataclass(slots=True)
class Trial:
    """One run. `frames` are the hashes of a request's outputs, in order; `moved` the bytes of weights that came to the
    device during requests, by component; `modes` the mode of every component; `plan` what was planned for it.
    """

    name: str
    folder: Path
    marks: Sequence[Mark] = ()
    frames: dict[int, list[str]] = field(default_factory=dict)
    moved: dict[str, int] = field(default_factory=dict)
    modes: dict[str, str] = field(default_factory=dict)
    plan: Mapping[str, Any] | None = None
    device: str = ""
    peak_bytes: int | None = None
    seconds: float = 0.0
    error: FrameworkError | None = None

    def __call__(self, event: events.Event) -> None:
        """Hear the run."""
        match event:
            case events.RunStarted(device=device):
                self.device = device
            case events.ComponentLoaded(component=component, mode=mode):
                self.modes[component] = mode
            case events.PlanMade(plan=plan):
                self.plan = plan
            case events.OutputSaved(frames_sha256=str(sha256)) if not Path(event.path).name.startswith("sheet"):
                self.frames.setdefault(event.request, []).append(sha256)
            case events.MemoryMeasured():
                self.peak_bytes = max(filter(None, (self.peak_bytes, event.device_peak_bytes)), default=None)
                for component, ways in event.moved_bytes.items():
                    self.moved[component] = self.moved.get(component, 0) + ways.get("h2d", 0)
            case events.RunFinished(seconds=seconds):
                self.seconds = seconds

    @property
    def unmoved(self) -> tuple[str, ...]:
        """Components that are to be offloaded and never came: nothing is proved of them."""
        return tuple(sorted(name for name, mode in self.modes.items() if mode != RESIDENT and not self.moved.get(name)))


def run_trial(spec: RunSpec, name: str, folder: Path, closely: Place | None = None, keeps: bool = False) -> Trial:
    """Run `spec` in a new `folder`. `closely` is a part to look at module by module; `keeps`: keep its artifacts.

    An error of the run is in the result; only an interrupt is raised.
    """
    from framework.outputs.writer import OutputWriter
    from framework.runtime.artifacts import Artifacts
    from framework.runtime.run import execute
    from framework.verifying.fingerprint import Fingerprint

    folder.mkdir()
    spec = replace(spec, output=replace(spec.output, sheet=False, keep_artifacts=keeps))
    graph = build_graph(spec.pipeline)
    trial, log, fingerprint = Trial(name, folder), LogFile(folder), Fingerprint(closely)
    keeper = RecordSink(folder, spec)
    bus = events.EventBus(log, keeper, trial, fingerprint)
    try:
        for note in spec.notes:
            bus.emit(events.Note(note))
        writer = OutputWriter(spec.output, folder, bus, spec.requests, config_sha256(redact(spec.config)))
        artifacts: Artifacts | None = Artifacts(folder, spec, graph, bus) if keeps else None
        execute(spec, graph, bus, writer, tracer=fingerprint, artifacts=artifacts)
    except Interrupted:
        raise
    except FrameworkError as error:
        trial.error = error
    except Exception as error:  # what a library raised outside a stage: the other modes still have their turn
        trial.error = FrameworkError(f"{type(error).__name__}: {error}")
    finally:
        if not keeper.finished:
            keeper.finish("interrupted" if trial.error is None else "failed", str(trial.error or "interrupted"))
        log.close()
    trial.marks = fingerprint.marks
    return trial
