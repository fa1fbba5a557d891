"""A worker on a node of a Ray cluster as the sweep's process sees it: the same as one on this machine. No torch."""

import contextlib
import os
import threading
from collections import deque
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from framework import __version__
from framework.sweep.devices import Device
from framework.sweep.process import End, describe_end
from framework.sweep.ray_seat import LOG
from framework.sweep.transfer import fetch_files, pack_files

POLL_S = 0.3
PATIENCE_S = 15.0  # for an actor to answer that is about to be let go


class RayWorker:
    """Follows one actor in a thread of its own, which writes a job's files to the sweep's folder as they come."""

    def __init__(self, seat: Any, device: Device) -> None:
        self.device = device
        self.ready = False
        self.load_key: str | None = None
        self._seat, self._folder = seat, Path()
        self._messages: deque[dict[str, Any]] = deque()
        self._code: int | None = None
        self._lost: str | None = None
        self._closed = self._closing = False
        self._wakes, self._wake = os.pipe()
        os.set_blocking(self._wakes, False)
        self._thread = threading.Thread(target=self._follow, daemon=True)
        self._thread.start()

    def fileno(self) -> int:
        """The descriptor that becomes readable when the worker says something or ends."""
        return self._wakes

    def send(self, message: Mapping[str, Any]) -> None:
        """Hand a job over, with what its earlier attempt has kept."""
        self._folder = Path(str(message["folder"]))
        earlier = message.get("earlier")
        self._seat.run.remote(dict(message), pack_files(None if earlier is None else Path(str(earlier))))

    def read(self) -> tuple[list[dict[str, Any]], bool]:
        """Return the messages that have come, and whether the worker is gone."""
        with contextlib.suppress(BlockingIOError):
            os.read(self._wakes, 1 << 16)
        closed = self._closed  # before the messages: the last of them come with it
        found = [self._messages.popleft() for _ in range(len(self._messages))]
        return found, closed

    def interrupt(self) -> None:
        """Ask the running job to end at its next check."""
        self._seat.interrupt.remote()

    def kill(self) -> int:
        """End the job at once, take what it has written, and let the actor go."""
        self._seat.kill.remote()
        self._thread.join(PATIENCE_S)
        self._let_go()
        return -9 if self._code is None else self._code

    def kill_without_waiting(self) -> None:
        """End it at once; safe in a signal handler."""
        import ray

        ray.kill(self._seat)

    def close(self) -> int:
        """Let an idle worker go."""
        self._let_go()
        return 0 if self._code is None else self._code

    def end(self) -> End:
        """Say how a worker that is gone has ended, and that its node was lost where Ray says so."""
        self._let_go()
        if self._lost is not None:
            return End(f"the worker on {self.device.label} was lost: {self._lost}", None, node_lost=True)
        code = -9 if self._code is None else self._code
        return End(describe_end(code), code)

    def _let_go(self) -> None:
        import ray

        self._closing = True
        if self._lost is None:
            with contextlib.suppress(ray.exceptions.RayError, ray.exceptions.GetTimeoutError):
                ray.get(self._seat.close.remote(), timeout=PATIENCE_S)
        with contextlib.suppress(ray.exceptions.RayError):
            ray.kill(self._seat)
        self._thread.join(PATIENCE_S)
        for descriptor in (self._wakes, self._wake):
            os.close(descriptor)

    # In the thread

    def _follow(self) -> None:
        import ray

        try:
            self._check_version(ray.get(self._seat.version.remote()))
            while not self._closing and self._code is None:
                self._take(ray.get(self._seat.poll.remote(POLL_S)))
        except Exception as error:  # whatever it is, nobody can speak with this worker any more
            self._lost = _said(error)
        finally:
            self._closed = True
            self._rouse()

    def _check_version(self, version: str) -> None:
        if version != __version__:
            raise RuntimeError(f"the node has version {version} of this program, and the sweep {__version__}")

    def _take(self, answer: Mapping[str, Any]) -> None:
        import ray

        if answer["log"]:
            with (self._folder / LOG).open("ab") as log:
                log.write(answer["log"])
        over = any(message["event"] == "ended" for message in answer["messages"])
        if over or answer["code"] is not None:
            listed = ray.get(self._seat.files.remote())
            fetch_files(self._folder, listed, lambda name, start: ray.get(self._seat.read.remote(name, start)))
            ray.get(self._seat.forget.remote())
        self._messages.extend(answer["messages"])
        self._code = answer["code"]
        if answer["messages"]:
            self._rouse()

    def _rouse(self) -> None:
        with contextlib.suppress(OSError):
            os.write(self._wake, b"!")


def _said(error: Exception) -> str:
    """Ray's own errors fill a page; their kinds say enough."""
    import ray

    error = getattr(error, "cause", None) or error
    lines = str(error).strip().splitlines()
    kind = type(error).__name__
    return kind if isinstance(error, ray.exceptions.RayError) or not lines else f"{kind}: {lines[0]}"
