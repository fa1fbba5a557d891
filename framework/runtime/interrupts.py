"""Stopping a run at any time: a signal sets a flag, the next check raises, and a deadline bounds the wait. No torch."""

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

from framework.errors import Interrupted

GRACE_S = 1.0
"""How long a stop may wait for the next check before it is raised wherever the program is."""

SIGNALS = (signal.SIGINT, signal.SIGTERM)


class Interrupts:
    """Whether the user asked for the end, and how that reaches the running code."""

    def __init__(self) -> None:
        self._asked: str | None = None
        self._raised = False

    def request(self, what: str = "interrupted") -> None:
        """Ask for the end of the run at the next check."""
        self._asked = self._asked or what

    def check(self) -> None:
        """Raise `Interrupted` once the end has been asked for."""
        if self._asked is not None:
            self._raised = True
            raise Interrupted(self._asked)

    def handle_signal(self, number: int, frame: FrameType | None) -> None:
        """First signal: stop at the next check, at most `GRACE_S` later. Second: stop here."""
        if self._asked is not None:
            self.check()
        self.request(f"interrupted by {signal.Signals(number).name}")
        if not hasattr(signal, "setitimer"):
            self.check()
        signal.setitimer(signal.ITIMER_REAL, GRACE_S)

    def handle_deadline(self, number: int, frame: FrameType | None) -> None:
        """No check came in time. Where one has raised already, the run is ending: leave it alone."""
        if not self._raised:
            self.check()


@contextmanager
def interruptible(interrupts: Interrupts | None = None) -> Iterator[Interrupts]:
    """Route SIGINT and SIGTERM into `interrupts` while the block runs; the handlers of before come back after it.

    Outside the main thread signals cannot be taken, and only `request` stops the run.
    """
    chosen = interrupts or Interrupts()
    if threading.current_thread() is not threading.main_thread():
        yield chosen
        return
    handlers: dict[int, Any] = {number: signal.signal(number, chosen.handle_signal) for number in SIGNALS}
    if hasattr(signal, "SIGALRM"):
        handlers[signal.SIGALRM] = signal.signal(signal.SIGALRM, chosen.handle_deadline)
    try:
        yield chosen
    finally:
        if hasattr(signal, "setitimer"):
            signal.setitimer(signal.ITIMER_REAL, 0.0)
        for number, handler in handlers.items():
            signal.signal(number, handler)
