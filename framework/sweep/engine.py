"""Runs jobs on workers, one for each place on a device; one job's failure never ends another. No torch."""

import selectors
import signal
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType
from typing import Any, Protocol

from framework.sweep.job import Job
from framework.sweep.places import Host, LocalHost, Place, Worker
from framework.sweep.settings import FRESH, SweepSettings
from framework.sweep.state import (
    DONE,
    FAILED,
    INTERRUPTED,
    State,
    begin_attempt,
    end_attempt,
    left_to_go_on,
    write_state,
)

TICK_S = 0.2
GRACE_S = 10.0  # for running jobs to close their records after an interrupt
LOGS = "workers"  # what workers print between jobs
START_LIMIT_S = 600.0  # for a worker to import its libraries
REST_S = 30.0  # for a cluster to find out whether a node whose worker was lost is there


class Watcher(Protocol):
    """Gets told what happens; see `framework.sweep.show`."""

    def started(self, job: Job, state: State) -> None: ...
    def moved(self, job: Job, where: str) -> None: ...
    def ended(self, job: Job, state: State, again: bool) -> None: ...
    def tick(self) -> None: ...
    def close(self) -> None: ...


@dataclass(slots=True)
class Engine:
    """The queue of a sweep. `states` are by job name; each change is written to the job's folder at once."""

    folder: Path
    settings: SweepSettings
    places: Sequence[Place]
    states: Mapping[str, State]
    watcher: Watcher
    host: Host = field(default_factory=LocalHost)
    _moved: set[str] = field(default_factory=set)
    _waiting: list[Job] = field(default_factory=list)
    _tries: dict[str, int] = field(default_factory=dict)
    _failures: int = 0
    _stopping: bool = False
    _selector: selectors.BaseSelector = field(default_factory=selectors.DefaultSelector)

    def run(self, jobs: Sequence[Job]) -> bool:
        """Run `jobs`, those that share weights one after another; return whether the user stopped it.

        Waits for running jobs when no more may be started. The first SIGINT or SIGTERM lets them close their records as
        interrupted; a second one kills them.
        """
        self._waiting = sorted(jobs, key=lambda job: (job.load_key, job.number))
        with self._interruptible():
            try:
                while not self._stopping and (self._start_more() or self._busy()):
                    self._wait()
            finally:
                self._end_workers()
        return self._stopping

    # Starting

    def _start_more(self) -> bool:
        """Give free places their next jobs; return whether any job still waits for one."""
        stop = self.settings.failures_to_stop
        if stop is not None and self._failures >= stop:
            self._waiting.clear()
        for place in self.places:
            if place.job is None and self._is_usable(place):
                job = self._next_for(place)
                if job is not None:
                    self._start(place, job)
        self._fail_stranded()
        return bool(self._waiting)

    def _is_usable(self, place: Place) -> bool:
        """A place whose worker was lost with its node is left alone until it is known whether the node is there."""
        if place.rests_until and time.monotonic() >= place.rests_until:
            place.rests_until, place.gone = 0.0, not self.host.is_there(place.device)
        return not place.rests_until and not place.gone

    def _fail_stranded(self) -> None:
        """Jobs that no place is left for have failed."""
        for job in [job for job in self._waiting if not any(place.takes(job) for place in self.places)]:
            self._waiting.remove(job)
            state = self.states[job.name]
            state.status, state.error = FAILED, "no device is left that this job could run on"
            write_state(self.folder, state)
            self._failures += 1
            self.watcher.ended(job, state, False)

    def _next_for(self, place: Place) -> Job | None:
        """A job whose weights the place has, else one whose weights no other place has, else the first."""
        fitting = [job for job in self._waiting if place.takes(job)]
        if not fitting:
            return None
        own = place.worker.load_key if place.worker is not None else None
        others = {other.worker.load_key for other in self.places if other is not place and other.worker is not None}
        same = next((job for job in fitting if job.load_key == own), None)
        return same or next((job for job in fitting if job.load_key not in others), fitting[0])

    def _start(self, place: Place, job: Job) -> None:
        self._waiting.remove(job)
        state = self.states[job.name]
        folder = begin_attempt(self.folder, state, place.device.label)
        self._tries[job.name] = self._tries.get(job.name, 0) + 1
        if place.worker is None:
            place.worker = self._hire(place)
        place.job, place.since = job, time.monotonic()
        place.worker.load_key = job.load_key
        self.watcher.started(job, state)
        assert job.parcel is not None
        earlier = left_to_go_on(self.folder, state, job)
        message: dict[str, Any] = {"op": "run", "job": job.name, "folder": str(folder), "device": place.device.label}
        message |= {
            "card": place.device.card,
            "device_bytes": self._share(place, job),
            "words": list(job.words),
            "earlier": str(earlier) if earlier is not None else None,
        }
        place.message = {**message, "parcel": job.parcel}
        self._send(place)

    def _sharing(self, place: Place) -> int:
        """How many places its device has."""
        return sum(other.device == place.device for other in self.places)

    def _share(self, place: Place, job: Job) -> int | None:
        """What a job may take of a device at most that it shares; None: no bound but its own."""
        room, sharing = job.rooms.get(place.device.card), self._sharing(place)
        return room.capacity_bytes // sharing if room is not None and sharing > 1 else None

    def _send(self, place: Place) -> None:
        """Hand the job over once the worker reads: a pipe that nobody reads would hold this process up."""
        if place.worker is not None and place.worker.ready and place.message is not None:
            place.worker.send(place.message)
            place.message = None

    def _hire(self, place: Place) -> Worker:
        logs = self.folder / LOGS
        logs.mkdir(exist_ok=True)
        worker = self.host.hire(place.device, logs / f"{place.number}.txt", self._sharing(place))
        self._selector.register(worker, selectors.EVENT_READ, place)
        return worker

    # Watching

    def _busy(self) -> bool:
        return any(place.job is not None for place in self.places)

    def _wait(self) -> None:
        for key, _ in self._selector.select(TICK_S):
            self._listen(key.data)
        for place in self.places:
            self._check_limit(place)
        self.watcher.tick()

    def _listen(self, place: Place) -> None:
        assert place.worker is not None
        messages, closed = place.worker.read()
        for message in messages:
            self._hear(place, message)
        if closed and place.worker is not None:
            self._lost(place)

    def _hear(self, place: Place, message: Mapping[str, Any]) -> None:
        job = place.job
        if message["event"] == "ready" and place.worker is not None:
            place.worker.ready = True
            place.since = time.monotonic()
            self._send(place)
        elif message["event"] == "at" and job is not None:
            step = f" {message['step']}/{message['num_steps']}" if message.get("step") else ""
            self.watcher.moved(job, f"{message['what']}{step}")
        elif message["event"] == "ended" and job is not None and message["job"] == job.name:
            if message["status"] != DONE or self.settings.workers == FRESH:
                self._dismiss(place)
            self._end(place, message["status"], message["error"], message["seconds"])

    def _check_limit(self, place: Place) -> None:
        """Kill the worker of a job that takes too long, or that does not even come up."""
        if place.job is None or place.worker is None:
            return
        limit = self.settings.job_limit_s if place.worker.ready else START_LIMIT_S
        took = time.monotonic() - place.since
        if limit is not None and took > limit:
            what = "the job took" if place.worker.ready else "the worker process took to start"
            reason = f"{what} longer than {limit:g} s and was stopped"
            code = self._dismiss(place, at_once=True)
            self._end(place, FAILED, reason, took, code)

    def _lost(self, place: Place) -> None:
        """The worker of a place is gone; so is the job it had. A job that a node took with it runs elsewhere, once."""
        assert place.worker is not None
        took = time.monotonic() - place.since
        self._selector.unregister(place.worker)
        ended, ready = place.worker.end(), place.worker.ready
        place.worker = None
        if ended.node_lost:
            place.rests_until = time.monotonic() + REST_S
        if place.job is None:
            return
        if self._stopping:
            self._end(place, INTERRUPTED, "interrupted", took, ended.exit_code)
        elif ended.node_lost and place.job.name not in self._moved:
            self._moved.add(place.job.name)
            self._tries[place.job.name] -= 1
            self._end(place, INTERRUPTED, ended.reason, took, elsewhere=True)
        else:
            where = "" if ready or ended.node_lost else f"; see {self.folder / LOGS / f'{place.number}.txt'}"
            self._end(place, FAILED, ended.reason + where, took, ended.exit_code)

    def _end(
        self,
        place: Place,
        status: str,
        error: str | None,
        seconds: float,
        code: int | None = None,
        *,
        elsewhere: bool = False,
    ) -> None:
        job, place.job, place.message = place.job, None, None
        assert job is not None
        state = self.states[job.name]
        end_attempt(self.folder, state, status, error, seconds, code)
        failed = status == FAILED and not self._stopping
        again = elsewhere or (failed and self._tries[job.name] <= self.settings.retries)
        if again:
            self._waiting.append(job)
        elif status == FAILED:
            self._failures += 1
        self.watcher.ended(job, state, again)

    # Ending

    def _dismiss(self, place: Place, at_once: bool = False) -> int:
        """End the worker of a place; nothing of a job that failed may reach the next one."""
        assert place.worker is not None
        self._selector.unregister(place.worker)
        worker, place.worker = place.worker, None
        return worker.kill() if at_once else worker.close()

    def _end_workers(self) -> None:
        """Let running jobs end where the user stopped the sweep; no worker is left after this."""
        deadline = time.monotonic() + GRACE_S
        while self._stopping and self._busy() and time.monotonic() < deadline:
            self._wait()
        for place in self.places:
            if place.worker is None:
                continue
            took = time.monotonic() - place.since
            code = self._dismiss(place, at_once=place.job is not None)
            if place.job is not None:
                self._end(place, INTERRUPTED, "interrupted", took, code)

    def _interrupt(self, number: int, frame: FrameType | None) -> None:
        """First signal: running jobs close their records. Second: they are killed where they are."""
        if self._stopping:
            for place in self.places:
                if place.worker is not None:
                    place.worker.kill_without_waiting()
            return
        self._stopping = True
        for place in self.places:
            if place.worker is not None and place.job is not None:
                place.worker.interrupt()

    @contextmanager
    def _interruptible(self) -> Iterator[None]:
        kept = {number: signal.signal(number, self._interrupt) for number in (signal.SIGINT, signal.SIGTERM)}
        try:
            yield
        finally:
            for number, handler in kept.items():
                signal.signal(number, handler)
