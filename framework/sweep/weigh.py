"""Weighs jobs against the devices of a sweep before the first one starts, and says how many share one. No torch."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from framework.errors import FrameworkError
from framework.planning.machine import resolve_hardware
from framework.platforms.hardware import as_mapping, load_hardware
from framework.spec import RunSpec
from framework.sweep.devices import Device
from framework.sweep.fit import Sizes, refusal_of
from framework.sweep.foresight import Foreseen, Question, foresee, on_hardware
from framework.sweep.job import Job, Room

AUTO = "auto"
CONTEXT_BYTES = 512 << 20  # what each further process takes of a real GPU, where the config does not say
MAX_TOGETHER = 8
Prepare = Callable[[RunSpec], None]
"""Gets what a job needs onto this machine; raises `FrameworkError` where that cannot be."""


def weigh(jobs: Sequence[Job], devices: Sequence[Device], jobs_per_device: int | None, prepare: Prepare) -> list[Job]:
    """Return the jobs with their refusals, the cards they do not fit, and what they take of each.

    `jobs_per_device` None: that is to be found from these plans.
    """
    sizes: Sizes = {}
    cards = list(dict.fromkeys(device.card for device in devices))
    fetched = [_fetched(job, prepare) for job in jobs]
    asked = [(number, card) for number, job in enumerate(fetched) if job.refusal is None for card in cards]
    questions = [_question(fetched[number], card, jobs_per_device or 1) for number, card in asked]
    rough = [refusal_of(question.whole, jobs_per_device or 1, sizes) for question in questions]
    still = [place for place, refusal in enumerate(rough) if refusal is None]
    found = {place: Foreseen(refusal=refusal) for place, refusal in enumerate(rough)}
    seen = foresee([questions[place] for place in still], every=jobs_per_device is None)
    found |= dict(zip(still, seen, strict=True))
    answers: dict[int, dict[str | None, Foreseen]] = {}
    for place, (number, card) in enumerate(asked):
        answers.setdefault(number, {})[card] = found[place]
    return [_weighed(job, answers.get(number, {})) for number, job in enumerate(fetched)]


def _fetched(job: Job, prepare: Prepare) -> Job:
    if job.spec is None:
        return job
    try:
        prepare(job.spec)
    except FrameworkError as error:
        return replace(job, refusal=str(error))
    return job


def _question(job: Job, card: str | None, jobs_per_device: int) -> Question:
    assert job.spec is not None
    hardware = hardware_of(job.spec, card)
    capacity = _capacity(on_hardware(job.spec, hardware))
    return Question(job, hardware, None if capacity is None or jobs_per_device == 1 else capacity // jobs_per_device)


def hardware_of(spec: RunSpec, card: str | None) -> Mapping[str, Any] | None:
    """The profile of a card for a job that does not say itself for what card it is."""
    own = (spec.config.get("hardware") or {}).get("name", AUTO)
    return None if card is None or own != AUTO else as_mapping(load_hardware(card))


def _capacity(spec: RunSpec) -> int | None:
    """Bytes of the device that tensors can have; None where host and device are one."""
    if spec.device.partition(":")[0] in ("cpu", "mps"):
        return None
    profile = resolve_hardware(spec.config.get("hardware"), spec.device).profile
    return None if profile.unified or profile.vendor == "cpu" else profile.capacity_bytes


def _weighed(job: Job, answers: Mapping[str | None, Foreseen]) -> Job:
    if job.spec is None or not answers:
        return job
    unfit = frozenset(card for card, answer in answers.items() if answer.refusal is not None)
    rooms = {}
    for card, answer in answers.items():
        capacity = _capacity(on_hardware(job.spec, hardware_of(job.spec, card)))
        if capacity is not None and answer.refusal is None:
            rooms[card] = Room(capacity, answer.peak_bytes)
    refusal = None
    if len(unfit) == len(answers):
        card, answer = next(iter(answers.items()))
        refusal = answer.refusal if card is None else f"on {card}: {answer.refusal}"
    return replace(job, unfit=unfit, rooms=rooms, refusal=refusal)


def share_devices(jobs: Sequence[Job], devices: Sequence[Device]) -> tuple[int, str]:
    """Return how many jobs share each device by their plans, and a line that says why."""
    running = [job for job in jobs if job.refusal is None]
    if not running:
        return 1, "no job is left to share a device"
    rooms = [(job, room) for job in running for room in job.rooms.values()]
    if not rooms:
        return 1, "one job at once on each device: it shares the host's memory"
    unknown = next((job for job, room in rooms if room.peak_bytes is None), None)
    if unknown is not None:
        return 1, f"one job at once on each device: nobody knows what job {unknown.number} takes"
    fitting = [room.capacity_bytes // (_with_context(job, room) or 1) for job, room in rooms]
    most = max(1, min(*fitting, MAX_TOGETHER, math.ceil(len(running) / len(devices)))) if fitting else 1
    largest = max(room.peak_bytes or 0 for _, room in rooms)
    jobs_at_once = "one job" if most == 1 else f"{most} jobs"
    return most, f"{jobs_at_once} at once on each device: by their plans the largest takes {largest / 1e6:.1f} MB"


def _with_context(job: Job, room: Room) -> int:
    assert job.spec is not None
    own = job.spec.reserve.context
    context = 0 if job.spec.device.startswith("sim") else CONTEXT_BYTES
    if own is not None:
        context = own.of(room.capacity_bytes, room.capacity_bytes)
    return (room.peak_bytes or 0) + context
