"""Which settings had no effect, and the lines that say so. No torch."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from framework.compose.knobs import AMOUNTS, Amount, remark
from framework.compose.legacy_fold import FSDP, NOT_LAYERWISE
from framework.compose.machine_rules import AUTO, LAYERWISE, Override
from framework.compose.settings import CANONICAL, Components, Findings, Setting


@dataclass(frozen=True, slots=True)
class Decision:
    """What became of one component.

    `possible` is the mode before the device's own rules: a knob has an effect if that is layerwise. `ranked` holds
    every candidate of a subject, best first; `winners` the one that won, None for the built-in default, or where it is
    `planned` for the planner's choice.
    """

    mode: str
    possible: str
    ranked: Mapping[str, list[Setting]]
    winners: Mapping[str, Setting | None]
    overrides: tuple[Override, ...]
    planned: bool = False


Decisions = Mapping[str, Decision]


def note_effects(settings: Iterable[Setting], decisions: Decisions, components: Components, findings: Findings) -> None:
    """One line for each setting that matched nothing, had no effect, or is not taken to the letter."""
    for setting in settings:
        user = setting.origin.layer == "user"
        if not setting.targets:
            if user:
                findings.note("matches no component of this pipeline", setting.key, setting.origin)
        elif setting.subject == "mode":
            if user:
                _note_mode(setting, decisions, findings)
        else:
            _note_knob(setting, decisions, findings)
            if user and setting.subject in AMOUNTS:
                _note_remark(setting, decisions, components, findings)


def _note_mode(setting: Setting, decisions: Decisions, findings: Findings) -> None:
    """A mode that lost everywhere to other values; legacy offload below legacy streaming combines instead."""
    lost = _lost(setting, decisions)
    streamed = {
        name: winner
        for name, winner in lost.items()
        if setting.text == "component-offload" and winner.text == LAYERWISE and setting.step != CANONICAL != winner.step
    }
    if streamed:
        winner = next(iter(streamed.values()))
        text = f"combines with {winner.name}: loaded on the host, then streamed: {', '.join(streamed)}"
        findings.note(text, setting.key, setting.origin)
    elif len(lost) == len(setting.targets) or (lost := _contradicted(setting, lost)):
        _note_beaten(setting, lost, findings)


def _contradicted(setting: Setting, lost: Mapping[str, Setting]) -> dict[str, Setting]:
    """The part of a lost legacy setting that another legacy one contradicts, which is told even if the rest holds.

    `dit_layerwise_offload=false` is no contradiction of component-offload; sharding has lines of its own.
    """
    if setting.step in (CANONICAL, FSDP):
        return {}
    allowed = "component-offload" if setting.step == NOT_LAYERWISE else setting.text
    return {name: winner for name, winner in lost.items() if winner.step != CANONICAL and winner.text != allowed}


def _note_knob(setting: Setting, decisions: Decisions, findings: Findings) -> None:
    streamed = [name for name in setting.targets if decisions[name].possible in (AUTO, LAYERWISE)]
    if not streamed:
        _note_not_layerwise(setting, decisions, findings)
    elif setting.origin.layer != "user":
        return
    elif len(lost := _lost(setting, decisions)) == len(setting.targets):
        _note_beaten(setting, lost, findings)
    elif setting.subject == "policy" and not any(_may_keep_layers(decisions[name]) for name in streamed):
        findings.note(f"no effect: no layer of {', '.join(streamed)} stays resident", setting.key, setting.origin)


def _note_not_layerwise(setting: Setting, decisions: Decisions, findings: Findings) -> None:
    """A knob of components that are not streamed.

    Of a preset this is said only where it chose the mode itself: an overruled preset is no mistake. A pipeline's own
    knobs are for whoever chooses to stream.
    """
    if setting.origin.layer == "pipeline":
        return
    name = next(iter(setting.targets))
    decision = decisions[name]
    winner = decision.winners["mode"]
    own = winner is not None and winner.origin.layer == setting.origin.layer
    if setting.replaced_by or (setting.origin.layer != "user" and not (own and not decision.overrides)):
        return
    why = decision.overrides[0].why if decision.overrides else winner.name if winner else "the default"
    names = ", ".join(setting.targets)
    findings.note(f"no effect: {names} is {decision.possible}, not {LAYERWISE}, by {why}", setting.key, setting.origin)


def _note_beaten(setting: Setting, lost: Mapping[str, Setting], findings: Findings) -> None:
    winners = dict.fromkeys(winner.name for winner in lost.values())
    text = f"no effect on {', '.join(lost)}: beaten by {', '.join(winners)}"
    findings.note(text, f"{setting.key}={setting.text}", setting.origin)


def _note_remark(setting: Setting, decisions: Decisions, components: Components, findings: Findings) -> None:
    assert isinstance(setting.value, Amount)
    for name in setting.targets:
        text = remark(setting.value, components[name].stack_lengths)
        taken = decisions[name].winners[setting.subject] is setting
        if text and taken and decisions[name].possible in (AUTO, LAYERWISE):
            findings.note(f"for {name}, {text}", setting.key, setting.origin)


def _lost(setting: Setting, decisions: Decisions) -> dict[str, Setting]:
    """The components where another setting with another value won, each with that setting."""
    winners = {name: decisions[name].winners[setting.subject] for name in setting.targets}
    return {name: winner for name, winner in winners.items() if winner and winner.value != setting.value}


def _may_keep_layers(decision: Decision) -> bool:
    winner = decision.winners["resident"]
    if winner is None:
        return decision.planned
    return isinstance(winner.value, Amount) and winner.value.number > 0
