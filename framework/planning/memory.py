"""The peak of device memory in each stage, with the parts it is made of. No torch.

A use reserves everything when it begins, so within it only activations come and go: the peak of a stage is the highest
of its moments (`planning.uses`).
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from framework.planning.facts import Choice, ComponentSizes
from framework.planning.footprint import Footprint, footprint
from framework.planning.problem import PlanProblem
from framework.planning.uses import Life, Moment, live_through, ring_groups


@dataclass(frozen=True, slots=True)
class StagePeak:
    """The highest moment of a stage: `parts` sum up to `size_bytes`."""

    stage: str
    size_bytes: int
    parts: Mapping[str, int]


def stage_peaks(problem: PlanProblem, choices: Mapping[str, Choice], life: Life | None = None) -> tuple[StagePeak, ...]:
    """Return the peak of every stage, in order; components of unknown size are left out."""
    life = life or live_through(problem.work, problem.uses)
    held = footprints(problem, choices)
    running = _Running(problem.components, held)
    highest: dict[str, tuple[int, Moment]] = {}
    for moment in life.moments:
        size = running.size_at(moment)
        if moment.stage not in highest or size > highest[moment.stage][0]:
            highest[moment.stage] = size, moment
    found = ((stage.stage, *highest[stage.stage]) for stage in problem.work.stages)
    return tuple(StagePeak(name, size, moment_parts(problem.components, held, moment)) for name, size, moment in found)


class _Running:
    """The bytes of one moment after the other: only what has changed since the last one is looked at."""

    def __init__(self, components: Mapping[str, ComponentSizes], held: Mapping[str, Footprint]) -> None:
        self._components, self._held = components, held
        self._size = sum(own.idle_bytes for own in held.values())
        self._in_place: set[str] = set()
        self._on_ring: Counter[str] = Counter()
        self._seen: set[str] = set()

    def size_at(self, moment: Moment) -> int:
        """Return the sum of `moment_parts`; what has been seen once stays seen."""
        for name in moment.changed & self._held.keys():
            self._place(name, in_place(self._held[name], moment, name))
            if name in moment.seen and name not in self._seen:
                self._seen.add(name)
                self._size += self._components[name].lazy_bytes
        return self._size + moment.extra_bytes

    def _place(self, name: str, now: bool) -> None:
        if now == (name in self._in_place):
            return
        own, sign = self._held[name], 1 if now else -1
        self._in_place ^= {name}
        self._size += sign * (own.used_bytes - own.idle_bytes)
        before = self._on_ring[own.ring or name]
        self._on_ring[own.ring or name] += sign
        if not before or not self._on_ring[own.ring or name]:  # a ring that others share counts once
            self._size += sign * own.ring_bytes


def footprints(problem: PlanProblem, choices: Mapping[str, Choice]) -> dict[str, Footprint]:
    """Return each known component's footprint; those that share a ring all have the largest one."""
    held = {name: footprint(problem.components[name], choices[name], name in problem.parked) for name in problem.known}
    for names in rings(problem):
        sharing = [name for name in names if held[name].slots]
        if len(sharing) > 1:
            slots = max(held[name].slots for name in sharing)
            size = max(held[name].slot_bytes for name in sharing)
            held |= {name: with_ring(held[name], slots, size, " and ".join(sharing)) for name in sharing}
    return held


def rings(problem: PlanProblem) -> tuple[tuple[str, ...], ...]:
    """Return the components of known size that take turns on one ring where they are streamed."""
    groups = {name: sizes.group for name, sizes in problem.components.items()}
    known = set(problem.known)
    found = (tuple(name for name in names if name in known) for names in ring_groups(problem.uses, groups))
    return tuple(names for names in found if len(names) > 1)


def with_ring(held: Footprint, slots: int, slot_bytes: int, ring: str) -> Footprint:
    return replace(held, slots=slots, slot_bytes=slot_bytes, ring=ring)


def weight_bytes(held: Footprint, moment: Moment, component: str) -> int:
    """Return the device bytes of a component's weights at a moment, its own ring included."""
    if in_place(held, moment, component):
        return held.used_bytes + held.ring_bytes
    return held.idle_bytes


def in_place(held: Footprint, moment: Moment, component: str) -> bool:
    """Whether what a use holds is on the device."""
    return component in moment.active or (held.stays and component in moment.seen)


def moment_parts(
    components: Mapping[str, ComponentSizes], held: Mapping[str, Footprint], moment: Moment
) -> dict[str, int]:
    """Return the bytes of a moment by what they are."""
    parts: dict[str, int] = {}
    for name, own in held.items():
        if in_place(own, moment, name):
            parts |= {f"{name} {part}": size for part, size in own.parts.items()}
            parts[f"ring of {own.ring or name}"] = own.ring_bytes
        else:
            parts[f"{name} between uses"] = own.idle_bytes
        parts[f"{name} made on first use"] = components[name].lazy_bytes if name in moment.seen else 0
    parts["activations"] = moment.activation_bytes
    parts["values between calls"] = moment.live_bytes
    parts["kept by the stage"] = moment.kept_bytes
    return {part: size for part, size in parts.items() if size}


def largest(parts: Mapping[str, int], count: int = 3) -> Sequence[tuple[str, int]]:
    """Return the largest parts, largest first."""
    return sorted(parts.items(), key=lambda part: (-part[1], part[0]))[:count]
