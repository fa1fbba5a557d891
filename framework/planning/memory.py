"""The peak of device memory in each stage, with the parts it is made of. No torch.

A use reserves everything when it begins, so within it only activations come and go: the peak of a stage is the highest
of its moments (`planning.uses`).
"""

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
    peaks: dict[str, StagePeak] = {}
    for moment in life.moments:
        parts = moment_parts(problem.components, held, moment)
        size = sum(parts.values())
        if moment.stage not in peaks or size > peaks[moment.stage].size_bytes:
            peaks[moment.stage] = StagePeak(moment.stage, size, parts)
    return tuple(peaks[stage.stage] for stage in problem.work.stages)


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
