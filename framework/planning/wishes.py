"""Between placements, as configs and the engine have them, and the planner's wishes and choices. No torch."""

from collections.abc import Mapping
from dataclasses import replace

from framework.compose.knobs import DEFAULTS, Amount, read_amount, to_knob
from framework.errors import Origin
from framework.memory.policy import Knobs
from framework.planning.facts import Choice, ComponentSizes
from framework.planning.problem import LAYERWISE, MODES, RESIDENT, Wish
from framework.quantization import Quantization
from framework.spec import Knob, Placement, Reason

AUTO = "auto"
PLANNER = "the planner"
LEFT_TO_THE_ENGINE = ("pinned", "device")  # tiers that need no word to it


def wish_of(placement: Placement, sizes: ComponentSizes, quantization: Quantization | None = None) -> Wish:
    """Return what a placement of a planned run has fixed; its knobs need stacks of known length to mean anything."""
    mode = None if placement.mode == AUTO else placement.mode
    if mode is None and quantization is not None:
        able = [name for name in MODES if not quantization.method.refusal(name)]
        mode = able[0] if len(able) == 1 else None
    if not sizes.stacks:
        return Wish(mode=mode)
    policy = placement.policy
    return Wish(
        mode=mode,
        prefetch=None if placement.prefetch is None else _counts("prefetch", placement.prefetch, sizes, policy),
        resident=None if placement.resident is None else _counts("resident", placement.resident, sizes, policy),
        policy=policy,
        lifetime=placement.lifetime,
    )


def choice_of(placement: Placement | None, sizes: ComponentSizes, unified: bool = False) -> Choice:
    """Return what the engine makes of a placement. Without one, and on one memory for all, everything is resident."""
    if placement is None or unified or placement.mode == RESIDENT:
        return Choice(component=sizes.name, mode=RESIDENT, tier="device")
    if placement.mode != LAYERWISE:
        return Choice(component=sizes.name, mode=placement.mode)
    policy = placement.policy or str(DEFAULTS["policy"])
    return Choice(
        component=sizes.name,
        mode=LAYERWISE,
        prefetch=_counts("prefetch", placement.prefetch, sizes, policy),
        resident=_counts("resident", placement.resident, sizes, policy),
        policy=policy,
        lifetime=placement.lifetime or str(DEFAULTS["lifetime"]),
        tier=placement.tier or "pinned",
    )


def fixed(choice: Choice) -> Wish:
    """Return the wish that leaves nothing of a choice open but the host's tier."""
    if choice.mode != LAYERWISE:
        return Wish(mode=choice.mode)
    return Wish(
        mode=choice.mode,
        prefetch=choice.prefetch,
        resident=choice.resident,
        policy=choice.policy,
        lifetime=choice.lifetime,
    )


def placement_of(choice: Choice, before: Placement) -> Placement:
    """Return a choice as the engine takes it, with the planner's reason in front of those there were."""
    reason = Reason("mode", choice.mode, Origin("automatic", PLANNER), "residency", before.mode == AUTO, choice.reason)
    kept = tuple(reason for reason in before.reasons if reason.value != AUTO)
    streamed = choice.mode == LAYERWISE
    return Placement(
        component=choice.component,
        group=before.group,
        mode=choice.mode,
        prefetch=_knob(choice.prefetch) if streamed else None,
        resident=_knob(choice.resident) if streamed else None,
        policy=choice.policy if streamed else None,
        lifetime=choice.lifetime if streamed else None,
        tier=None if choice.tier in LEFT_TO_THE_ENGINE else choice.tier,
        reasons=(reason, *kept),
    )


def placed_by(choices: Mapping[str, Choice], placements: Mapping[str, Placement]) -> dict[str, Placement]:
    """Return all placements with those in `choices` decided; a component that no stage uses stays as it is."""
    found = {
        name: placements[name] if name in placements else Placement(component=name, group=None, mode=RESIDENT)
        for name in (*placements, *choices)
    }
    return {name: placement_of(choices[name], one) if name in choices else settled(one) for name, one in found.items()}


def settled(placement: Placement) -> Placement:
    """Return a placement as it is, or resident where the planner was to decide and nothing uses it."""
    return replace(placement, mode=RESIDENT) if placement.mode == AUTO else placement


def _knob(counts: tuple[int, ...]) -> Knob:
    """Counts as the engine reads them: one number, or one for each stack."""
    return Knob("+".join(str(count) for count in counts) or "0", layers=counts)


def _counts(knob: str, said: Knob | None, sizes: ComponentSizes, policy: str | None) -> tuple[int, ...]:
    """Return the layers of each stack that an amount means in this component; bytes are filled in call order."""
    own = [[layer.size_bytes for layer in stack.layers] for stack in sizes.stacks]
    lengths = tuple(len(stack) for stack in own)
    if said is not None and said.is_per_stack and said.layers is not None and len(said.layers) == len(lengths):
        return said.layers
    amount = DEFAULTS[knob] if said is None else read_amount(knob, said.written)
    assert isinstance(amount, Amount)
    found = to_knob(knob, amount, lengths)
    if found.size_bytes is None:
        return found.layers or (0,) * len(lengths)
    streamed = Knobs(lengths, lengths, found.size_bytes, policy or str(DEFAULTS["policy"])).streamed(own)
    first, counts = 0, []
    for length in lengths:
        counts.append(length - sum(first <= layer < first + length for layer in streamed))
        first += length
    return tuple(counts)
