"""Carries a planned sweep out in its folder: what is done stays, what is refused is noted, the rest runs. No torch."""

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from framework.errors import ConfigError, OutputError
from framework.outputs.folder import check_free_space, check_name, claim_folder
from framework.outputs.frames import needed_bytes
from framework.paths import expand
from framework.report.sweep_page import write_sweep_report
from framework.spec import OutputSpec
from framework.sweep.engine import Engine, Watcher
from framework.sweep.job import Job
from framework.sweep.manifest import FILE_NAME, KEY, Manifest, locked, read_manifest, write_manifest
from framework.sweep.places import Host, LocalHost, places_of
from framework.sweep.plan import SweepPlan
from framework.sweep.results import write_results
from framework.sweep.settings import RAY
from framework.sweep.state import DONE, PENDING, REFUSED, State, is_done, read_state, write_state
from framework.sweep.summary import sweep_data

OTHER = "choose another folder"
MakeWatcher = Callable[[Sequence[Job], dict[str, State]], Any]


@dataclass(frozen=True, slots=True)
class Outcome:
    """How a sweep ended; `states` are in the order of its jobs, `report` is None where none was asked for."""

    folder: Path
    states: tuple[State, ...]
    results: Path
    interrupted: bool
    report: Path | None = None


def find_folder(directory: str | None, output: OutputSpec) -> Path:
    """Return the folder of a new sweep, made now, or one that `--dir` names and that is empty or a sweep's.

    Raises `ConfigError` for a folder with other content, and for names that some system cannot hold.
    """
    if directory is None:
        return claim_folder(output)
    path = look_at_folder(directory)
    if path.is_dir():
        return path
    with _told_of_dir():
        return claim_folder(OutputSpec(root=path.parent, name=path.name))


def look_at_folder(directory: str) -> Path:
    """Return where `--dir` leads, which may not be there yet; touches nothing. Raises as `find_folder`."""
    path = expand(directory).absolute()
    if path.is_dir():
        if any(path.iterdir()) and not (path / FILE_NAME).is_file():
            raise ConfigError.of(KEY, f"'{path}' holds something else than a sweep", hint=OTHER)
    elif os.path.lexists(path):
        raise ConfigError.of(KEY, f"'{path}' is no folder", hint=OTHER)
    else:
        with _told_of_dir():
            check_name(OutputSpec(root=path.parent, name=path.name))
    return path


@contextmanager
def _told_of_dir() -> Iterator[None]:
    """Name the flag in problems of a run's folder, which go by keys of a config."""
    try:
        yield
    except ConfigError as error:
        raise ConfigError(replace(problem, key=KEY, hint=OTHER) for problem in error.problems) from None


def conduct(plan: SweepPlan, folder: Path, make_watcher: MakeWatcher, say: Callable[[str], None]) -> Outcome:
    """Run what is missing of `plan` in `folder`, which no other process may do at the same time."""
    with locked(folder):
        manifest = read_manifest(folder) or Manifest()
        write_manifest(folder, manifest.with_jobs(plan.command, plan.axes, plan.jobs))
        states = {job.name: read_state(folder, job) for job in plan.jobs}
        waiting = [job for job in _missing(plan, folder, states, say) if _may_start(plan)]
        interrupted = False
        try:
            if waiting:
                interrupted = _run(plan, folder, waiting, states, make_watcher)
        finally:
            ordered = tuple(states[job.name] for job in plan.jobs)
            results = write_results(folder, plan.keys, ordered)
        return Outcome(folder, ordered, results, interrupted, _report(plan, folder, ordered, say))


def _report(plan: SweepPlan, folder: Path, states: Sequence[State], say: Callable[[str], None]) -> Path | None:
    """The page of the whole sweep, where its jobs have pages; a sweep is not lost for one that cannot be written."""
    if not any(job.spec is not None and job.spec.output.report for job in plan.jobs):
        return None
    manifest = read_manifest(folder) or Manifest()
    try:
        return write_sweep_report(sweep_data(folder, manifest, plan.keys, states))
    except OutputError as error:
        say(f"note: {error}")
        return None


def _may_start(plan: SweepPlan) -> bool:
    """With `fail_fast` a refused job is reason enough to start none."""
    return not (plan.settings.fail_fast and any(job.refusal is not None for job in plan.jobs))


def _missing(plan: SweepPlan, folder: Path, states: dict[str, State], say: Callable[[str], None]) -> list[Job]:
    """The jobs that are to be run, on the evidence of what is in the folder; writes the state of all others."""
    missing = []
    for job in plan.jobs:
        state = states[job.name]
        before = (state.status, state.error)
        if is_done(folder, job):
            state.status, state.error = DONE, None
        elif job.refusal is not None:
            state.status, state.error = REFUSED, job.refusal.splitlines()[0]
        else:
            if state.status == DONE:
                say(f"job {job.number}: its result is incomplete or damaged; it is made again")
            missing.append(job)
            state.status, state.error = PENDING, None
        if before != (state.status, state.error) or not (folder / job.name).is_dir():
            write_state(folder, state)
    return missing


def _run(
    plan: SweepPlan, folder: Path, jobs: Sequence[Job], states: dict[str, State], make_watcher: MakeWatcher
) -> bool:
    check_free_space(folder, max(needed_bytes(job.spec.requests) for job in jobs if job.spec is not None))
    watcher: Watcher = make_watcher(jobs, states)
    places = places_of(plan.devices, plan.settings.jobs_per_device or 1)
    placed = [replace(job, parcel=_placed(job, folder)) for job in jobs]
    try:
        return Engine(folder, plan.settings, places, states, watcher, _host(plan)).run(placed)
    finally:
        watcher.close()


def _host(plan: SweepPlan) -> Host:
    if plan.settings.engine == RAY:
        from framework.sweep.ray_cluster import Cluster

        return Cluster(plan.settings.ray, plan.plugins)
    return LocalHost(plan.plugins)


def _placed(job: Job, folder: Path) -> dict[str, Any]:
    """What a worker gets, with the place of the results in the config that its record will have."""
    assert job.parcel is not None
    output = {**(job.parcel["data"].get("output") or {}), "root": str(folder), "name": job.name}
    return {**job.parcel, "data": {**job.parcel["data"], "output": output}}
