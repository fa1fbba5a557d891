"""Decides what a sweep is: its jobs, devices and settings, from words or from the manifest of its folder. No torch."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

from framework import __version__
from framework.compose.arguments import Flags
from framework.compose.composer import announce_plugins
from framework.compose.groups import config_folders
from framework.compose.overrides import Override, read_overrides
from framework.errors import ConfigError
from framework.spec import OutputSpec
from framework.sweep.axes import split_words
from framework.sweep.compose_jobs import Composer, Slots, compose_jobs
from framework.sweep.devices import Device, find_devices
from framework.sweep.grid import Assignment, Grid
from framework.sweep.job import Job
from framework.sweep.manifest import KEY, Manifest
from framework.sweep.preset import read_grid, read_group
from framework.sweep.settings import RAY, SweepSettings, read_settings
from framework.sweep.spread import together
from framework.sweep.weigh import Prepare, share_devices

REPEATED = ("config_dir", "config_name", "devices", "devices_per_job", "jobs_per_device", "retries", "fail_fast",
            "max_failures", "engine")  # fmt: skip
"""Flags that a resume without words takes over from the start of the sweep, unless it says otherwise."""


@dataclass(frozen=True, slots=True)
class SweepPlan:
    """Everything decided before a folder is touched."""

    jobs: tuple[Job, ...]
    keys: tuple[str, ...]
    axes: Mapping[str, Sequence[Any]]
    settings: SweepSettings
    devices: tuple[Device, ...]
    command: Mapping[str, Any]
    plugins: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def output(self) -> OutputSpec:
        """Where a sweep without `--dir` goes: what its first job says."""
        return next(job.spec.output for job in self.jobs if job.spec is not None)


def plan_sweep(words: Sequence[str], flags: Flags, prepare: Prepare, manifest: Manifest | None = None) -> SweepPlan:
    """Compose, check and weigh all jobs of `words`, numbered as in `manifest` where that knows them.

    Raises `ConfigError` for wrong words, and for words that mean other jobs than the folder has, unless `--extend`.
    """
    start = _start(words, flags)
    folders = config_folders(flags, start.shared)
    fixed, axes = split_words(words, folders)
    grid = read_grid(start.group, start.provenance, axes, flags, start.said, folders)
    lines = [(_without(fixed, own), own) for own in grid.jobs()]
    jobs = compose_jobs(lines, start.composer, start.slots, prepare)
    if manifest is not None:
        old = {entry.identity for entry in manifest.jobs}
        if not flags.extend:
            _refuse_change(jobs, manifest)
        missing = [entry for entry in manifest.jobs if entry.identity not in {job.identity for job in jobs}]
        before = _recompose(missing, start, prepare)
        jobs = _numbered([*before, *jobs], manifest)
        assert old <= {job.identity for job in jobs}
    return start.plan(jobs, grid, words, flags)


def _without(fixed: Sequence[str], own: Sequence[Assignment]) -> list[str]:
    """The words of all jobs that a job does not say itself; the choice of the sweep is none of a job's."""
    keys = {"sweep", *(assignment.key for assignment in own)}
    return [word for word in fixed if word.partition("=")[0].lstrip("+") not in keys]


def plan_resume(flags: Flags, prepare: Prepare, manifest: Manifest) -> SweepPlan:
    """Compose again what the manifest of a folder lists, as it was started.

    Raises `ConfigError` where files have changed in between, so that its jobs would not be those that were started.
    """
    command = manifest.commands[-1]
    flags = _flags_of(command, flags)
    start = _start(command["words"], flags)
    jobs = _numbered(_recompose(manifest.jobs, start, prepare), manifest)
    keys = tuple(dict.fromkeys(key for entry in manifest.jobs for key in entry.values))
    plan = start.plan(jobs, Grid(), command["words"], flags)
    return replace(plan, keys=keys, axes=manifest.axes, notes=(*plan.notes, *_version_notes(manifest)))


def _version_notes(manifest: Manifest) -> tuple[str, ...]:
    if manifest.version == __version__:
        return ()
    return (f"the sweep was started by version {manifest.version}; this is {__version__}",)


@dataclass(frozen=True, slots=True)
class _Start:
    """What the words say of the sweep as a whole."""

    shared: Sequence[Override]
    group: Mapping[str, Any]
    provenance: Any
    settings: SweepSettings
    devices: tuple[Device, ...]
    composer: Composer
    left: tuple[Device, ...] = ()

    @property
    def notes(self) -> tuple[str, ...]:
        """Devices that are too few for another job."""
        listed = ", ".join(device.label for device in self.left)
        return (f"no job gets {listed}: each has {self.settings.devices_per_job} devices",) if listed else ()

    @property
    def said(self) -> Mapping[str, Override]:
        return {word.key: word for word in self.shared if word.kind != "delete"}

    @property
    def slots(self) -> Slots:
        wanted = self.settings.devices
        shown = ",".join(map(str, wanted)) if isinstance(wanted, tuple) else str(wanted)
        return Slots(self.devices, shown, self.settings.jobs_per_device, self.settings.devices_per_job)

    def plan(self, jobs: Sequence[Job], grid: Grid, words: Sequence[str], flags: Flags) -> SweepPlan:
        axes = {axis.key: [value.value for value in axis.values] for axis in grid.axes}
        said = {name: value for name in REPEATED if (value := getattr(flags, name))}
        command = {"words": list(words), "flags": said, "version": __version__}
        plugins = tuple(name for word in self.shared if word.kind == "plugins" for name in word.value)
        settings, notes = self.settings, self.notes
        if settings.jobs_per_device is None:
            number, why = share_devices(jobs, self.devices)
            settings, notes = replace(settings, jobs_per_device=number), (*notes, why)
        return SweepPlan(tuple(jobs), grid.keys, axes, settings, self.devices, command, plugins, notes)


def _start(words: Sequence[str], flags: Flags) -> _Start:
    fixed, _ = split_words(words)
    shared = read_overrides(fixed)
    announce_plugins(shared)
    composer = Composer(flags)
    group, provenance = read_group(shared, flags, composer.files)
    settings = read_settings(group, flags)
    devices, left = together(_devices(settings), settings.devices_per_job)
    return _Start(shared, group, provenance, settings, tuple(devices), composer, tuple(left))


def _devices(settings: SweepSettings) -> list[Device]:
    """The devices of this machine, or of the cluster, which is joined here."""
    if settings.engine != RAY:
        return find_devices(settings.devices)
    from framework.sweep.ray_cluster import cluster_devices, connect

    connect(settings.ray)
    return cluster_devices(settings.devices)


def _flags_of(command: Mapping[str, Any], flags: Flags) -> Flags:
    """The flags of a start, under those of the resume."""
    known = {field.name for field in fields(Flags)} & set(REPEATED)
    before = {name: value for name, value in command["flags"].items() if name in known and not getattr(flags, name)}
    listed = {name: tuple(value) for name, value in before.items() if isinstance(value, list)}
    return replace(flags, **{**before, **listed})


def _recompose(entries: Sequence[Any], start: _Start, prepare: Prepare) -> list[Job]:
    """Compose listed jobs again; each must come out as the one that was listed."""
    if not entries:
        return []
    jobs = compose_jobs([entry.line() for entry in entries], start.composer, start.slots, prepare, some=False)
    changed = {entry.identity for entry in entries} - {job.identity for job in jobs}
    if changed:
        numbers = ", ".join(str(entry.number) for entry in entries if entry.identity in changed)
        reason = f"the files behind this sweep have changed since it was started: job {numbers} would be another"
        raise ConfigError.of(KEY, reason, hint="undo the change, or start the sweep in another folder")
    return jobs


def _refuse_change(jobs: Sequence[Job], manifest: Manifest) -> None:
    old, new = {entry.identity for entry in manifest.jobs}, {job.identity for job in jobs}
    if old == new:
        return
    counted = ((len(new - old), "these jobs are not in it"), (len(old - new), "its jobs are not among these"))
    parts = [f"{count} of {what}" for count, what in counted if count]
    hint = "add jobs with --extend, resume it with --dir alone, or choose another folder"
    raise ConfigError.of(KEY, f"the folder holds another sweep: {' and '.join(parts)}", hint=hint)


def _numbered(jobs: Sequence[Job], manifest: Manifest) -> list[Job]:
    """Jobs with the numbers that they have in the folder; new ones count on."""
    known = {entry.identity: entry.number for entry in manifest.jobs}
    following = max(known.values(), default=0)
    found = []
    for job in jobs:
        if job.identity not in known:
            following += 1
            known[job.identity] = following
        found.append(replace(job, number=known[job.identity]))
    return sorted(found, key=lambda job: job.number)
