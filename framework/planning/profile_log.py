"""What the stages of one request did, put in order while they run. No torch."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from framework.planning.facts import CallCount, CallWork, StageWork
from framework.planning.profile_tape import Sum


@dataclass(slots=True)
class _Heard:
    """One call, and what the log of steps said just then: None outside of a loop, or before its first step ended."""

    work: CallWork
    step: int | None


@dataclass(slots=True)
class _Stage:
    name: str
    heard: list[_Heard] = field(default_factory=list)
    outside: Sum = field(default_factory=Sum)
    num_steps: int = 0
    entry_bytes: int = 0
    later_bytes: int = 0
    end_bytes: int = 0


class StageLog:
    """Hears stages, steps and calls. What is alive is measured in calls and outside of them apart."""

    def __init__(self, tape: Any, memory: Any) -> None:
        self._tape = tape
        self._memory = memory
        self._stages: list[_Stage] = []
        self._stage: _Stage | None = None
        self._step: int | None = None
        self._mark: Any = None

    def mark(self, **labels: Any) -> None:
        """Hear `stage` and `step` as a platform is told of them; None ends what was."""
        if "stage" in labels:
            self._end_stage()
            if labels["stage"] is not None:
                self._stage = _Stage(labels["stage"])
                self._stages.append(self._stage)
                self._tape.current = self._stage.outside
                self._mark = self._memory.watch()
        if "step" in labels:
            self._step = labels["step"]

    def step_done(self, num_steps: int) -> None:
        if self._stage is not None:
            self._stage.num_steps = num_steps

    def use_done(self) -> None:
        """A use has ended: what is alive from here on may have the next component beside it."""
        if self._mark is not None:
            self._take_mark()
            self._mark = self._memory.watch()

    def begin_call(self) -> None:
        self._take_mark()

    def end_call(self, work: CallWork) -> None:
        if self._stage is not None:
            self._stage.heard.append(_Heard(work, self._step))
            self._mark = self._memory.watch()

    def take(self, looped: Callable[[str], bool]) -> tuple[StageWork, ...]:
        """Return what every stage did since the last time; `looped` says which components run in the loop of steps."""
        self._end_stage()
        stages, self._stages = self._stages, []
        return tuple(_stage_work(stage, looped) for stage in stages)

    def _end_stage(self) -> None:
        if self._stage is not None and self._mark is not None:
            self._stage.end_bytes = self._mark.peak_bytes
        self._take_mark()
        self._stage = self._step = None

    def _take_mark(self) -> None:
        if self._mark is not None:
            self._memory.unwatch(self._mark)
            stage, peak = self._stage, self._mark.peak_bytes
            if stage is not None and stage.heard:
                stage.later_bytes = max(stage.later_bytes, peak)
            elif stage is not None:
                stage.entry_bytes = max(stage.entry_bytes, peak)
            self._mark = None


def _stage_work(stage: _Stage, looped: Callable[[str], bool]) -> StageWork:
    steps = [_step_of(heard, stage.num_steps, looped) for heard in stage.heard]
    return StageWork(
        stage=stage.name,
        calls=_counted([heard.work for heard in stage.heard], steps),
        extra_bytes=max(stage.entry_bytes, stage.later_bytes),
        entry_bytes=stage.entry_bytes,
        later_bytes=stage.later_bytes,
        end_bytes=stage.end_bytes,
        outside=stage.outside.work(),
    )


def _step_of(heard: _Heard, num_steps: int, looped: Callable[[str], bool]) -> int | None:
    """A pipeline that is called as a whole reports the end of steps only, so its first one has no number yet."""
    if not num_steps or not looped(heard.work.component):
        return None
    step = heard.step or 1
    return step if step <= num_steps else None


def _counted(works: Sequence[CallWork], steps: Sequence[int | None]) -> tuple[CallCount, ...]:
    """Put calls alike that follow each other together; what the caller holds meanwhile is the most of them."""
    found: list[CallCount] = []
    for work, step in zip(works, steps, strict=True):
        last = found[-1] if found else None
        if last is not None and (last.steps is None) == (step is None) and _alike(last.call, work):
            call = last.call if last.call.live_bytes >= work.live_bytes else work
            interval = None if last.steps is None or step is None else (last.steps[0], step)
            found[-1] = CallCount(call=call, count=last.count + 1, steps=interval)
        else:
            found.append(CallCount(call=work, count=1, steps=None if step is None else (step, step)))
    return tuple(found)


def _alike(one: CallWork, other: CallWork) -> bool:
    return replace(one, live_bytes=0) == replace(other, live_bytes=0)
