"""The next smaller placement when the device is full: one change, the cheapest first. Imports torch.

A run that was planned goes by what its plan would take next; after that, and without a plan, by rules of thumb: what is
idle leaves first, for it costs one copy a use. What is in use is streamed, then with fewer residents, then without a
layer fetched ahead. Weights keep their bytes in every mode, so no notch changes a picture.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace

from torch import nn

from framework.compose.knobs import DEFAULTS, Amount
from framework.errors import ConfigError
from framework.memory.layers import find_stacks
from framework.runtime.placed import RESIDENT, Placed
from framework.runtime.sharing import LAYERWISE, WHOLE
from framework.spec import Knob, NextBest, Placement

NextNotch = Callable[[Placed, str | None, Collection[str], Mapping[str, nn.Module], Collection[str]], "Notch | None"]
HALF = "50%"
NONE = "0"


@dataclass(frozen=True, slots=True)
class Notch:
    """One change: `placement` in place of the component's own. `text` says it; `words` would say it before a run."""

    placement: Placement
    text: str
    words: str

    @property
    def component(self) -> str:
        return self.placement.component

    @property
    def choice(self) -> str:
        """What tells this notch from others of its component."""
        return self.words


def next_notch(
    placed: Placed,
    failing: str | None,
    in_use: Collection[str],
    modules: Mapping[str, nn.Module],
    impossible: Collection[str] = (),
) -> Notch | None:
    """Return the next-best change, None where nothing is left.

    `in_use` are the components in a use, `failing` the one whose call found no memory. None is something between calls
    of a stage: then `in_use` are all it needs, and each may rest at times. `impossible` are choices that were refused.
    """
    footprints = placed.footprints()
    resting = placed.components() if failing is None else set(placed.components()) - {*in_use, failing}
    for name in sorted(resting, key=lambda name: (name in in_use, -footprints[name].idle_bytes)):
        notch = _leaving(placed.placement(name)) if footprints[name].idle_bytes else None
        if notch is not None and notch.choice not in impossible:
            return notch
    for member in (failing, *sorted(set(in_use) - {failing})):
        if member is not None and member in modules:
            for notch in _smaller(placed, member, modules[member]):
                if notch.choice not in impossible:
                    return notch
    return None


def planned(plan: Sequence[NextBest]) -> NextNotch:
    """Return `next_notch` with the next-best placements of a plan before its own, those of idle components first."""

    def order(
        placed: Placed,
        failing: str | None,
        in_use: Collection[str],
        modules: Mapping[str, nn.Module],
        impossible: Collection[str] = (),
    ) -> Notch | None:
        resting = set(placed.components()) - ({*in_use, failing} if failing is not None else set())
        for idle in (True, False):
            for one in plan:
                name = one.placement.component
                saved = one.idle_bytes if idle else one.used_bytes
                if name not in modules or (name in resting) is not idle or saved <= _saved(plan, placed, name, idle):
                    continue
                notch = _planned_notch(placed.placement(name), one)
                if notch.choice not in impossible:
                    return notch
        return next_notch(placed, failing, in_use, modules, impossible)

    return order if plan else next_notch


def _saved(plan: Sequence[NextBest], placed: Placed, name: str, idle: bool) -> int:
    """What the component's placement saves already: one of the plan's own notches, or the plan itself."""
    here = _words(placed.placement(name))
    taken = (one for one in plan if one.placement.component == name and _words(one.placement) == here)
    return max((one.idle_bytes if idle else one.used_bytes for one in taken), default=0)


def _planned_notch(before: Placement, one: NextBest) -> Notch:
    text = f"{before.component}: {_words(before)} -> {_words(one.placement)}, the plan's next-best"
    return Notch(one.placement, text, _command(one.placement))


def _words(placement: Placement) -> str:
    if placement.mode != LAYERWISE:
        return placement.mode
    return f"{LAYERWISE} with resident {_written(placement, 'resident')}, prefetch {_written(placement, 'prefetch')}"


def _command(placement: Placement) -> str:
    name, words = placement.component, [f"component_residency.{placement.component}={placement.mode}"]
    if placement.mode == LAYERWISE:
        words += [f"layerwise.{name}.{knob}={_written(placement, knob)}" for knob in ("resident", "prefetch")]
    return " ".join(words)


def waiting_notch(placement: Placement) -> Notch:
    """Let a component come whole for a use and wait on the host else."""
    name = placement.component
    text = f"{name}: {placement.mode} -> {WHOLE}"
    return Notch(replace(placement, mode=WHOLE), text, f"component_residency.{name}={WHOLE}")


def _leaving(placement: Placement) -> Notch | None:
    """Let an idle component keep nothing on the device between its uses."""
    name = placement.component
    if placement.mode == RESIDENT:
        return waiting_notch(placement)
    if placement.mode == LAYERWISE and placement.lifetime in ("retained", "permanent"):
        words = f"layerwise.{name}.lifetime=use"
        return Notch(replace(placement, lifetime="use"), f"{name}: lifetime {placement.lifetime} -> use", words)
    return None


def _smaller(placed: Placed, name: str, module: nn.Module) -> list[Notch]:
    """What a component in use can do itself, the cheapest first."""
    placement = placed.placement(name)
    if placement.mode in (RESIDENT, WHOLE):
        if not _streams(placed, name, module):
            return []
        words = f"component_residency.{name}={LAYERWISE} layerwise.{name}.resident={HALF}"
        half = replace(placement, mode=LAYERWISE, prefetch=Knob("1"), resident=Knob(HALF), policy="strided")
        return [Notch(half, f"{name}: {placement.mode} -> {LAYERWISE}, half of its layers resident", words)]
    if placement.mode != LAYERWISE:
        return []
    found = []
    for knob in ("resident", "prefetch"):
        written = _written(placement, knob)
        if written != NONE:
            chosen = replace(placement, lifetime="use")
            chosen = (
                replace(chosen, resident=Knob(NONE)) if knob == "resident" else replace(chosen, prefetch=Knob(NONE))
            )
            found.append(Notch(chosen, f"{name}: {knob} {written} -> 0", f"layerwise.{name}.{knob}=0"))
    return found


def _written(placement: Placement, knob: str) -> str:
    said: Knob | None = getattr(placement, knob)
    default = DEFAULTS[knob]
    assert isinstance(default, Amount)
    return said.written if said is not None else default.written


def _streams(placed: Placed, name: str, module: nn.Module) -> bool:
    try:
        find_stacks(name, module, placed.resources.layers.get(name, ()))
    except ConfigError:
        return False
    return True
