"""A worker process of a sweep: jobs come as JSON lines on standard input. Imports torch in functions only.

`python -m framework.sweep.worker` is started by the parent with its device alone visible, before anything could have
looked. Weights stay between jobs that share them, and move where the next one has them elsewhere. Whatever libraries
print during a job goes into that job's log.
"""

import contextlib
import ctypes
import json
import os
import queue
import signal
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from framework.compose.composer import announce_plugins, check
from framework.compose.plugins import load_plugins
from framework.errors import ConfigError, FrameworkError, Interrupted, PlanError
from framework.graph import build_graph
from framework.outputs.hashing import config_sha256
from framework.outputs.read_record import read_record
from framework.outputs.record import RecordSink
from framework.outputs.redact import redact
from framework.report.lines import LogFile
from framework.report.watching import Watchers
from framework.runtime import events
from framework.spec import RunSpec
from framework.sweep.foresight import bounded_spec, on_hardware
from framework.sweep.job import unpack
from framework.sweep.weigh import hardware_of

if TYPE_CHECKING:
    from framework.runtime.warm import Warm

PR_SET_PDEATHSIG = 1
REFUSED = (ConfigError.exit_code, PlanError.exit_code)  # nothing was computed
SECONDS_BETWEEN = 0.5  # between two messages about steps


def main(make_server: "Callable[[IO[str]], Server] | None" = None) -> int:
    """Serve jobs until the parent closes the pipe; `make_server` gets the stream of answers."""
    messages: queue.Queue[dict[str, Any]] = queue.Queue()
    answers = _own_standard_output()
    threading.Thread(target=_read, args=(messages,), daemon=True).start()
    hello = messages.get()
    _die_with(int(hello["parent"]))
    announce_plugins()
    load_plugins(hello["plugins"], "from the command line: plugins")
    server = (make_server or _warm_server)(answers)
    server.tell(event="ready")
    while True:
        server.serve(messages.get())


def _warm_server(answers: IO[str]) -> "Server":
    from framework.runtime.warm import Warm

    return Server(answers, Warm(moves=True))


def _own_standard_output() -> IO[str]:
    """Keep the pipe to the parent for ourselves: what others print to standard output goes where errors go."""
    pipe = os.dup(1)
    os.dup2(2, 1)
    return os.fdopen(pipe, "w", encoding="utf-8", buffering=1)


def _read(messages: "queue.Queue[dict[str, Any]]") -> None:
    for line in sys.stdin:
        messages.put(json.loads(line))
    os._exit(0)  # the parent let go: nobody waits for what is still going on here


def _die_with(parent: int) -> None:
    """Have the system end this process with its parent, even while a job holds the interpreter."""
    with contextlib.suppress(OSError, AttributeError):  # Linux only; elsewhere the closed pipe does it
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(0)


@dataclass(slots=True)
class Server:
    """Runs jobs and tells the parent."""

    answers: IO[str]
    warm: "Warm | None" = None

    def tell(self, **message: Any) -> None:
        self.answers.write(json.dumps(message) + "\n")

    def serve(self, message: Mapping[str, Any]) -> None:
        """Run one job and tell how it ended; nothing of it is raised."""
        started = time.perf_counter()
        self.tell(event="started", job=message["job"])
        status, error = self._run(message)
        self.tell(event="ended", job=message["job"], status=status, error=error, seconds=time.perf_counter() - started)

    def _run(self, message: Mapping[str, Any]) -> tuple[str, str | None]:
        folder = Path(message["folder"])
        log = LogFile(folder)
        try:
            with _printing_to(log):
                return self._run_logged(message, folder, log)
        finally:
            log.close()

    def _run_logged(self, message: Mapping[str, Any], folder: Path, log: LogFile) -> tuple[str, str | None]:
        log.write(f"job {message['job']} on {message['device']}: {' '.join(message['words'])}")
        keeper: RecordSink | None = None
        try:
            spec = check(unpack(message["parcel"]))
            keeper = RecordSink(folder, spec)
            bus = events.EventBus(log, keeper, Steps(self))
            for note in spec.notes:
                bus.emit(events.Note(note))
            earlier = Path(message["earlier"]) if message.get("earlier") else None
            self.make(_placed_spec(spec, message), folder, bus, earlier)
            return "done", None
        except BaseException as error:  # a job may raise anything, and its worker has to say so
            log.write("".join(traceback.format_exception(error)).rstrip())
            status, text = _end_of(error)
            if keeper is not None and not keeper.finished:
                keeper.finish(status, text)
            return status, text

    def make(self, spec: RunSpec, folder: Path, bus: events.EventBus, earlier: Path | None = None) -> None:
        """Run `spec` with its results in `folder`, from the artifacts that an attempt in `earlier` has kept."""
        from framework.outputs.writer import OutputWriter
        from framework.runtime.artifacts import Artifacts
        from framework.runtime.resume import Resume
        from framework.runtime.run import execute

        graph = build_graph(spec.pipeline)
        writer = OutputWriter(spec.output, folder, bus, spec.requests, config_sha256(redact(spec.config)))
        resume = Resume(earlier, graph, _hashes(earlier)) if earlier is not None else None
        artifacts = Artifacts(folder, spec, graph, bus, resume)
        watchers = Watchers(spec, folder, bus, f"python -m framework run --from {folder}")
        try:
            execute(spec, graph, bus, writer, warm=self.warm, tracer=watchers.tracer, artifacts=artifacts)
        finally:
            watchers.finish()


def _placed_spec(spec: RunSpec, message: Mapping[str, Any]) -> RunSpec:
    """A job that shares its device takes no more than its share; a simulated device is what its node stands for."""
    if spec.device.partition(":")[0] == "sim":
        spec = on_hardware(spec, hardware_of(spec, message.get("card")))
    return bounded_spec(spec, message.get("device_bytes"))


def _hashes(folder: Path) -> dict[Path, str]:
    """The artifacts that the record of an attempt lists, and what they must hash to."""
    entries = [entry for request in read_record(folder)["requests"] for entry in request.get("artifacts") or ()]
    return {folder / entry["path"]: entry["sha256"] for entry in entries}


def _end_of(error: BaseException) -> tuple[str, str]:
    """The status of a job that raised, and one line that says why."""
    lines = str(error).strip().splitlines()
    text = lines[0] if lines else type(error).__name__
    if isinstance(error, Interrupted | KeyboardInterrupt):
        return "interrupted", text
    if isinstance(error, FrameworkError):
        return ("refused" if error.exit_code in REFUSED else "failed"), text
    return "failed", f"{type(error).__name__}: {text}"


@contextlib.contextmanager
def _printing_to(log: LogFile) -> Iterator[None]:
    """Send what is printed in the block, by Python or by a library in C, to the end of `log`."""
    kept = [(stream, os.dup(stream)) for stream in (1, 2)]
    for stream, _ in kept:
        os.dup2(log.fileno(), stream)
    try:
        yield
    finally:
        for python in (sys.stdout, sys.stderr):
            python.flush()
        for stream, before in kept:
            os.dup2(before, stream)
            os.close(before)


class Steps:
    """A sink that tells the parent where a job is, at a bounded rate."""

    def __init__(self, server: Server) -> None:
        self._server = server
        self._last = 0.0

    def __call__(self, event: events.Event) -> None:
        if isinstance(event, events.StageStarted):
            self._tell(event.stage, None, None)
        elif isinstance(event, events.ComponentLoading):
            self._tell(f"loading {event.component}", None, None)
        elif isinstance(event, events.StepDone) and time.monotonic() - self._last > SECONDS_BETWEEN:
            self._tell(event.stage, event.step, event.num_steps)

    def _tell(self, what: str, step: int | None, num_steps: int | None) -> None:
        self._last = time.monotonic()
        self._server.tell(event="at", what=what, step=step, num_steps=num_steps)


if __name__ == "__main__":
    sys.exit(main())
