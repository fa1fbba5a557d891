"""One place on a node of a Ray cluster: an actor that keeps a worker process there and its files. No torch.

The actor itself computes nothing, so that a job can exit, be killed or hang as it does on one machine; Ray has shown
it one GPU, and its worker inherits that.
"""

import select
import shutil
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from framework import __version__
from framework.sweep.devices import Device
from framework.sweep.process import WorkerProcess
from framework.sweep.transfer import CHUNK_BYTES, Parcel, list_files, unpack_files

LOG = "log.txt"


class Seat:
    """Answers the sweep's process, one call after another; `poll` is what it is asked all the time."""

    def __init__(self, kind: str, environment: Mapping[str, str], module: str, plugins: Sequence[str]) -> None:
        self._root = Path(tempfile.mkdtemp(prefix="sweep-"))
        self._job: Path | None = None
        self._told_bytes = 0
        device = Device(kind, 0, kind, environment)
        self._worker = WorkerProcess(device, self._root / "worker.txt", plugins, module)
        self._code: int | None = None

    def version(self) -> str:
        """The version of this package on the node."""
        return __version__

    def run(self, message: Mapping[str, Any], earlier: Parcel) -> None:
        """Hand a job over; its folder is one of this node, with what an earlier attempt has kept beside it."""
        self._job, self._told_bytes = self._root / str(message["job"]), 0
        self._job.mkdir()
        before = None
        if earlier:
            before = self._root / f"{message['job']}-earlier"
            unpack_files(before, earlier)
        self._worker.send({**message, "folder": str(self._job), "earlier": None if before is None else str(before)})

    def poll(self, wait_s: float) -> dict[str, Any]:
        """Return what the worker has said, what is new in the log of its job, and its exit code once it is gone."""
        messages: list[dict[str, Any]] = []
        if self._code is None:
            ready, _, _ = select.select([self._worker.fileno()], [], [], wait_s)
            if ready:
                messages, closed = self._worker.read()
                self._code = self._worker.wait() if closed else None
        return {"messages": messages, "log": self._new_in_log(), "code": self._code}

    def _new_in_log(self) -> bytes:
        if self._job is None:
            return b""
        try:
            with (self._job / LOG).open("rb") as log:
                log.seek(self._told_bytes)
                found = log.read(CHUNK_BYTES)
        except OSError:
            return b""
        self._told_bytes += len(found)
        return found

    def files(self) -> list[tuple[str, int]]:
        """Return names and sizes of what the job has written."""
        return list_files(self._job) if self._job is not None else []

    def read(self, name: str, start: int) -> bytes:
        """Return at most a chunk of a file of the job."""
        assert self._job is not None
        with (self._job / name).open("rb") as file:
            file.seek(start)
            return file.read(CHUNK_BYTES)

    def forget(self) -> None:
        """Delete what the job has written here: the sweep has it."""
        if self._job is not None:
            shutil.rmtree(self._job, ignore_errors=True)
            shutil.rmtree(f"{self._job}-earlier", ignore_errors=True)
            self._job = None

    def interrupt(self) -> None:
        """Ask the running job to end at its next check."""
        self._worker.interrupt()

    def kill(self) -> None:
        """End the worker at once; the next `poll` tells."""
        self._worker.kill_without_waiting()

    def close(self) -> None:
        """Leave nothing on the node."""
        if self._code is None:
            self._worker.kill()
        shutil.rmtree(self._root, ignore_errors=True)
