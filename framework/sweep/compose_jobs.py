"""Composes, checks and weighs every job before the first one starts, and reports all problems at once. No torch."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from framework.compose.arguments import Flags
from framework.compose.composer import Composed, check, compose_words, finish_words
from framework.compose.overrides import Override, read_overrides
from framework.compose.provenance import USER
from framework.compose.repeats import refuse_repeats
from framework.errors import ConfigError, FrameworkError, Origin, Problem
from framework.platforms.hardware import as_mapping, load_hardware
from framework.spec import RunSpec
from framework.sweep.devices import Device
from framework.sweep.fit import Sizes, refusal_of
from framework.sweep.grid import Assignment
from framework.sweep.job import Job, content_of, identity_of, identity_of_words, order_of, pack

if TYPE_CHECKING:
    from framework.compose.hydra_compose import Composition

AUTO, SIM, NONE, CUDA = "auto", "sim", "none", "cuda"
Prepare = Callable[[RunSpec], None]
"""Gets what a job needs onto this machine; raises `FrameworkError` where that cannot be."""


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
    """What jobs are checked against: the devices of the sweep, and how many jobs share one."""

    devices: Sequence[Device]
    wanted: str
    jobs_per_device: int = 1


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
    sizes: Sizes = {}
    jobs: dict[str, Job] = {}
    problems: list[Problem] = []
    for fixed, assignments in assigned:
        try:
            job = _job(fixed, assignments, composer, slots)
        except FrameworkError as error:
            problems += error.problems if isinstance(error, ConfigError) else [Problem("", str(error))]
            job = _refused(fixed, assignments, str(error))
        jobs.setdefault(job.identity, replace(job, number=len(jobs) + 1))
    if some and all(job.spec is None for job in jobs.values()):
        raise ConfigError(dict.fromkeys(problems))
    return [_weighed(job, slots, sizes, prepare) for job in jobs.values()]


def _job(fixed: Sequence[str], assignments: Sequence[Assignment], composer: Composer, slots: Slots) -> Job:
    words = (*fixed, *(assignment.word for assignment in assignments))
    composed = composer.job(words)
    device = str(composed.data.get("device") or "auto")
    index = _put_device(composed, device, slots)
    spec = check(composed)
    content = content_of(spec.config)
    return Job(
        number=0,
        words=words,
        values={own.key: own.value for own in assignments},
        identity=identity_of(content, device),
        content=content,
        load_key=order_of(spec),
        device_index=index,
        parcel=pack(composed),
        spec=spec,
    )


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
    if not number.isdecimal() or int(number) not in {own.index for own in slots.devices if own.kind == kind}:
        listed = ", ".join(f"{own.kind}:{own.index}" for own in slots.devices)
        raise _no_device(composed, f"the sweep does not have {device}", f"it has {listed}")
    composed.data["device"] = kind
    return int(number)


def _no_device(composed: Composed, reason: str, hint: str = "") -> ConfigError:
    return ConfigError.of("device", reason, composed.provenance.locate("device"), hint)


def _weighed(job: Job, slots: Slots, sizes: Sizes, prepare: Prepare) -> Job:
    """Refuse what the facts at hand speak against."""
    if job.spec is None:
        return job
    try:
        prepare(job.spec)
    except FrameworkError as error:
        return replace(job, refusal=str(error))
    refusals = {card: _refusal_on(card, job.spec, slots, sizes) for card in {own.card for own in slots.devices}}
    unfit = frozenset(card for card, refusal in refusals.items() if refusal is not None)
    return replace(job, unfit=unfit, refusal=next(iter(refusals.values())) if len(unfit) == len(refusals) else None)


def _refusal_on(card: str | None, spec: RunSpec, slots: Slots, sizes: Sizes) -> str | None:
    """Why a job cannot run on a card, where it does not say itself for what card it is."""
    if card is not None and (spec.config.get("hardware") or {}).get("name", AUTO) == AUTO:
        spec = replace(spec, config={**spec.config, "hardware": as_mapping(load_hardware(card))})
    refusal = refusal_of(spec, slots.jobs_per_device, sizes)
    return refusal if refusal is None or card is None else f"on {card}: {refusal}"


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
