"""What goes on right now, gathered from events: component, rate, memory and waiting, for one line. No torch."""

import time
from collections import deque
from collections.abc import Callable, Mapping
from typing import Any

from framework.report.foretold import read_foretold
from framework.report.phrases import format_bytes, format_seconds
from framework.runtime import events

RECENT = 8  # steps that the rate is taken from


class Status:
    """Fed with every event; `planned_bytes` is the device peak that a plan foretells, until the run makes its own."""

    def __init__(self, planned_bytes: int | None = None, clock: Callable[[], float] = time.monotonic) -> None:
        self._planned_bytes, self._clock = planned_bytes, clock
        self._planned_host_bytes: int | None = None
        self._component: str | None = None
        self._memory: events.MemorySampled | None = None
        self._stall: tuple[float, float] = (0.0, 0.0)  # waited, of so many seconds
        self._times: deque[float] = deque(maxlen=RECENT)
        self._step = self._num_steps = 0

    def __call__(self, event: events.Event) -> None:
        match event:
            case events.PlanMade(plan=plan):
                self._take(plan)
            case events.StageStarted():
                self._times.clear()
                self._times.append(self._clock())
                self._step = self._num_steps = 0
            case events.StepDone():
                self._times.append(self._clock())
                self._step, self._num_steps = event.step, event.num_steps
            case events.UseStarted(component=component):
                self._component = component
            case events.UseFinished(component=component):
                self._component = None if self._component == component else self._component
            case events.MemorySampled():
                self._memory = event
            case events.StallMeasured():
                self._stall = (self._stall[0] + event.stall_s, self._stall[1] + event.seconds)

    @property
    def seconds_a_step(self) -> float | None:
        """What a step takes now; None before the first, or where no time passes."""
        if len(self._times) < 2 or not self._step:
            return None
        passed = self._times[-1] - self._times[0]
        return passed / (len(self._times) - 1) if passed > 0 else None

    @property
    def left_s(self) -> float | None:
        """Seconds until the last step of this stage."""
        each = self.seconds_a_step
        return None if each is None else each * (self._num_steps - self._step)

    def pace(self) -> str:
        """Return `3.1 steps/s, 12.3 s left`, empty while unknown."""
        each, left = self.seconds_a_step, self.left_s
        if each is None or left is None:
            return ""
        rate = format_rate(1 / each)
        return f"{rate}, {format_seconds(left)} left" if left else rate

    def place(self) -> str:
        """Return the component, memory now and planned, and the share of waiting, as far as they are known."""
        parts = [self._component] if self._component else []
        memory = self._memory
        if memory is not None and memory.device_bytes is not None:
            planned = f", planned {format_bytes(self._planned_bytes)}" if self._planned_bytes else ""
            room = f" of {format_bytes(memory.capacity_bytes)}" if memory.capacity_bytes else ""
            parts.append(f"device {format_bytes(memory.device_bytes)}{room}{planned}")
        if memory is not None and memory.host_bytes is not None:
            size = self._planned_host_bytes
            weights = f", planned {format_bytes(size)} of weights" if size else ""
            parts.append(f"host {format_bytes(memory.host_bytes)}{weights}")
        if self._stall[1]:
            parts.append(f"waiting {100 * self._stall[0] / self._stall[1]:.0f} %")
        return "; ".join(parts)

    def _take(self, plan: Mapping[str, Any]) -> None:
        foretold = read_foretold(plan)
        if foretold is not None:
            self._planned_bytes, self._planned_host_bytes = foretold.peak_bytes, foretold.host_bytes


def format_rate(steps_per_second: float | None) -> str:
    """Return `3.1 steps/s`, or `12.0 s/step` below one a second; empty while unknown."""
    if not steps_per_second:
        return ""
    return f"{steps_per_second:.1f} steps/s" if steps_per_second >= 1 else f"{1 / steps_per_second:.1f} s/step"
