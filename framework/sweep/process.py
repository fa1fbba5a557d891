"""One worker process as the parent sees it: JSON lines in both directions, its end, its log. No torch."""

import contextlib
import json
import os
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from framework.sweep.devices import Device

READ_BYTES = 1 << 16
MODULE = "framework.sweep.worker"


@dataclass(frozen=True, slots=True)
class End:
    """How a worker ended by itself; `node_lost`: the machine it was on is gone, so its job is not to blame."""

    reason: str
    exit_code: int | None
    node_lost: bool = False


class WorkerProcess:
    """A child that runs one job after another on one device.

    It leads a process group of its own, so that Ctrl-C reaches the parent alone, which then stops it; it ends by itself
    when the parent is gone. What it prints between jobs goes to `log`.
    """

    def __init__(self, device: Device, log: Path, plugins: Sequence[str] = (), module: str | None = None) -> None:
        self.device = device
        self.ready = False
        self.load_key: str | None = None
        self._rest = b""
        with log.open("ab") as stream:
            self._process = subprocess.Popen(
                [sys.executable, "-P", "-m", module or MODULE],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=stream,
                env=child_environment(device.environment),
                start_new_session=True,
            )
        assert self._process.stdout is not None
        os.set_blocking(self._process.stdout.fileno(), False)
        self.send({"op": "hello", "parent": os.getpid(), "plugins": list(plugins)})

    def fileno(self) -> int:
        """The descriptor that becomes readable when the worker says something or ends."""
        assert self._process.stdout is not None
        return self._process.stdout.fileno()

    @property
    def pid(self) -> int:
        return self._process.pid

    def send(self, message: Mapping[str, Any]) -> None:
        """Write one line; a worker that is gone is found out by reading, not here."""
        assert self._process.stdin is not None
        with contextlib.suppress(BrokenPipeError):
            self._process.stdin.write(json.dumps(message).encode() + b"\n")
            self._process.stdin.flush()

    def read(self) -> tuple[list[dict[str, Any]], bool]:
        """Return the messages that have come, and whether the worker has closed its end, as it does by ending."""
        closed = False
        while True:
            try:
                chunk = os.read(self.fileno(), READ_BYTES)
            except BlockingIOError:
                break
            if not chunk:
                closed = True
                break
            self._rest += chunk
        *lines, self._rest = self._rest.split(b"\n")
        return [json.loads(line) for line in lines if line.startswith(b"{")], closed

    def interrupt(self) -> None:
        """Ask the running job to end at its next check."""
        self._signal(signal.SIGTERM)

    def kill(self) -> int:
        """End it at once, and return its exit code."""
        self._signal(signal.SIGKILL)
        return self.wait()

    def kill_without_waiting(self) -> None:
        """End it at once; safe in a signal handler."""
        self._signal(signal.SIGKILL)

    def close(self) -> int:
        """Let an idle worker end by itself, by force after a while; return its exit code."""
        assert self._process.stdin is not None
        with contextlib.suppress(BrokenPipeError):
            self._process.stdin.close()
        try:
            return self._finish(self._process.wait(timeout=5))
        except subprocess.TimeoutExpired:
            return self.kill()

    def end(self) -> End:
        """Say how a worker that is gone has ended."""
        code = self.wait()
        return End(describe_end(code), code)

    def wait(self) -> int:
        """Return the exit code of a worker that is ending; negative: the signal that killed it."""
        return self._finish(self._process.wait())

    def _finish(self, code: int) -> int:
        for stream in (self._process.stdin, self._process.stdout):
            if stream is not None:
                with contextlib.suppress(BrokenPipeError):
                    stream.close()
        return code

    def _signal(self, number: signal.Signals) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, number) if number == signal.SIGKILL else self._process.send_signal(number)


def child_environment(more: Mapping[str, str]) -> dict[str, str]:
    """The environment of a child that finds the same modules, with `more`."""
    return {**os.environ, **more, "PYTHONPATH": own_path()}


def own_path() -> str:
    """Where this process finds modules, plugins included; a child must find the same ones."""
    return os.pathsep.join(path or os.getcwd() for path in sys.path)


def describe_end(exit_code: int) -> str:
    """Say how a worker ended that did not finish its job."""
    if exit_code >= 0:
        return f"the worker process ended with exit code {exit_code} before its job was over"
    name = signal.Signals(-exit_code).name if -exit_code in list(signal.Signals) else f"signal {-exit_code}"
    hint = " (the system does that when memory runs out)" if name == "SIGKILL" else ""
    return f"the worker process was killed by {name}{hint} before its job was over"
