"""Composes, checks and weighs every job before the first one starts, and reports all problems at once. No torch."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from framework.compose.arguments import Flags
from framework.compose.composer import Composed, check, compose_words, finish_words
from framework.compose.overrides import Override, read_overrides, shorten
from framework.compose.provenance import USER
from framework.compose.repeats import refuse_repeats
from framework.errors import ConfigError, FrameworkError, Origin, Problem
from framework.sweep.devices import Device
from framework.sweep.grid import Assignment
from framework.sweep.job import Job, content_of, identity_of, identity_of_words, order_of, pack
from framework.sweep.spread import component_devices, spread
from framework.sweep.weigh import Prepare, weigh

if TYPE_CHECKING:
    from framework.compose.hydra_compose import Composition

SIM, CUDA = "sim", "cuda"


@dataclass(slots=True)
class Composer:
    """Composes jobs; the files of one combination of groups are composed once."""

    flags: Flags
    _files: dict[tuple[str, ...], "Composition"] = field(default_factory=dict)

    def files(self, words: Sequence[Override], flags: Flags | None = None) -> "Composition":
        """Return a composition of its own of the files that the group words choose."""
        key = tuple(word.line for word in words if word.kind in ("group", "searchpath"))
        if key not in self._files:
            self._files[key] = compose_words(words, self.flags)
        return self._files[key].copy()

    def job(self, lines: Sequence[str]) -> Composed:
        """Compose one job; its config holds no trace of the sweep that it is part of."""
        words = read_overrides(lines)
        refuse_repeats(words)
        composed = finish_words(self.files(words), [word for word in words if not word.key.startswith("sweep.")])
        composed.data["sweep"] = {}
        composed.provenance.prune(composed.data)
        return composed


@dataclass(frozen=True, slots=True)
class Slots:
    """What jobs are checked against: the devices of the sweep, and how many jobs share one; None: as plans say."""

    devices: Sequence[Device]
    wanted: str
    jobs_per_device: int | None = 1
    devices_per_job: int = 1


def compose_jobs(
    assigned: Iterable[tuple[Sequence[str], Sequence[Assignment]]],
    composer: Composer,
    slots: Slots,
    prepare: Prepare = lambda spec: None,
    *,
    some: bool = True,
) -> list[Job]:
    """Return a job for each pair of words it shares with others and words of its own; jobs that are equal are one.

    Those that cannot run have their refusal.

    Raises `ConfigError` with every problem when no job can be composed, where there must be `some`.
    """
    jobs: dict[str, Job] = {}
    problems: list[Problem] = []
    for fixed, assignments in assigned:
        try:
            job = _job(fixed, assignments, composer, slots)
        except FrameworkError as error:
            found = _in_their_files(error, assignments) if isinstance(error, ConfigError) else error
            problems += found.problems if isinstance(found, ConfigError) else [Problem("", str(found))]
            job = _refused(fixed, assignments, str(found))
        jobs.setdefault(job.identity, replace(job, number=len(jobs) + 1))
    if some and all(job.spec is None for job in jobs.values()):
        raise ConfigError(dict.fromkeys(problems))
    return weigh(list(jobs.values()), slots.devices, slots.jobs_per_device, prepare)


def _job(fixed: Sequence[str], assignments: Sequence[Assignment], composer: Composer, slots: Slots) -> Job:
    words = (*fixed, *(assignment.word for assignment in assignments))
    composed = composer.job(words)
    device = str(composed.data.get("device") or "auto")
    bound = [device, *(f"{name}: {own}" for name, own in component_devices(composed.data).items())]
    index = _put_device(composed, device, slots)
    spread(composed, next(iter(slots.devices)).kind, slots.devices_per_job)
    spec = check(composed)
    content = content_of(spec.config)
    return Job(
        number=0,
        words=words,
        values={own.key: own.value for own in assignments},
        identity=identity_of(content, " ".join(bound)),
        content=content,
        load_key=order_of(spec),
        device_index=index,
        parcel=pack(composed),
        spec=spec,
    )


def _in_their_files(error: ConfigError, assignments: Sequence[Assignment]) -> ConfigError:
    """Put problems of values that stand in a file there: to a job they are words of its command line."""
    places = {f"from the command line: {shorten(own.word)}": own.where for own in assignments if own.where}
    return ConfigError(replace(problem, where=places.get(problem.where, problem.where)) for problem in error.problems)


def _refused(fixed: Sequence[str], assignments: Sequence[Assignment], reason: str) -> Job:
    words = (*fixed, *(assignment.word for assignment in assignments))
    identity = identity_of_words(words)
    values = {own.key: own.value for own in assignments}
    return Job(number=0, words=words, values=values, identity=identity, content=identity, refusal=reason)


def _put_device(composed: Composed, device: str, slots: Slots) -> int | None:
    """Let the job run on the one device that its worker sees; return the index it was bound to, if any.

    Raises `ConfigError` for a device that the sweep does not have.
    """
    kinds = {own.kind for own in slots.devices}
    kind, _, number = device.partition(":")
    if kind == "auto" and SIM in kinds:
        origin = Origin(USER, f"from the command line: --devices {slots.wanted}")
        composed.data["device"] = SIM
        composed.provenance.put(("device",), SIM, origin)
        return None
    if kind not in kinds or kind == "cpu":
        if kind == CUDA:
            raise _no_device(composed, f"this sweep has no GPU: its devices are '{slots.wanted}'")
        return None
    if not number:
        return None
    if slots.devices_per_job > 1:
        reason = f"each job has {slots.devices_per_job} devices, and its components are on those"
        raise _no_device(composed, reason, f"write device={kind}, and components.NAME.device={kind}:1")
    if not number.isdecimal() or int(number) not in {own.index for own in slots.devices if own.kind == kind}:
        listed = ", ".join(f"{own.kind}:{own.index}" for own in slots.devices)
        raise _no_device(composed, f"the sweep does not have {device}", f"it has {listed}")
    composed.data["device"] = kind
    return int(number)


def _no_device(composed: Composed, reason: str, hint: str = "") -> ConfigError:
    return ConfigError.of("device", reason, composed.provenance.locate("device"), hint)


def report(jobs: Sequence[Job]) -> list[str]:
    """Return one line for each different reason of a refusal, with the numbers of the jobs that it concerns."""
    reasons: dict[str, list[int]] = {}
    for job in jobs:
        for line in (job.refusal or "").splitlines():
            reasons.setdefault(line, []).append(job.number)
    return [f"{_numbers(numbers)}: {reason}" for reason, numbers in reasons.items()]


def _numbers(numbers: Sequence[int]) -> str:
    shown = ", ".join(str(number) for number in numbers[:12])
    more = f" and {len(numbers) - 12} more" if len(numbers) > 12 else ""
    return f"job{'s' if len(numbers) > 1 else ''} {shown}{more}"


def values_shown(values: Mapping[str, Any], limit: int = 48) -> dict[str, str]:
    """The values of a job for a table, each on one line."""
    from framework.sweep.words import show

    texts = {key: show(value).replace("\n", " ") for key, value in values.items()}
    return {key: text if len(text) <= limit else f"{text[: limit - 3]}..." for key, text in texts.items()}
