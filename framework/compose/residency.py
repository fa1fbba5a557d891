"""The residency resolver: from single settings to mode, knobs and a reason trail per component. Pure; no torch."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType

from framework.compose.effects import Decision, note_effects
from framework.compose.knobs import AMOUNTS, DEFAULTS, KNOBS, Amount, remark, to_knob
from framework.compose.legacy_fold import FSDP, fold_legacy
from framework.compose.machine_rules import AUTO, LAYERWISE, RESIDENT, Override, Rules
from framework.compose.performance import (
    Hints,
    Performance,
    automatic_settings,
    note_small_card,
    read_hints,
    read_performance,
)
from framework.compose.settings import Components, Findings, Setting, in_layer, read_canonical, refuse_contradictions
from framework.compose.sources import ComponentFacts, Entry, MachineFacts, Sources
from framework.errors import ConfigError, Origin
from framework.spec import Knob, Placement, Reason

_DEFAULT = Origin("default", "built-in default")


@dataclass(frozen=True, slots=True)
class Resolution:
    """Where every component lives and why; `notes` are one line each.

    `folded` holds entries for keys outside residency that legacy keys became (`budget.pinned`, `warmup`); a canonical
    entry of the user's own for such a key beats them. `planned`: what no key of the user's own says is left to the
    planner, as mode `auto` and knobs of None; `presets` are what it has to beat.
    """

    placements: Mapping[str, Placement]
    notes: tuple[str, ...]
    folded: tuple[Entry, ...] = ()
    planned: bool = False
    presets: Mapping[str, Mapping[str, Placement]] = field(default_factory=dict)


def resolve(sources: Sources, components: Mapping[str, ComponentFacts], machine: MachineFacts | None) -> Resolution:
    """Resolve every component's placement; `machine` None applies no rule of a device.

    Raises `ConfigError` with all problems found. The result does not depend on the order inside a layer.
    """
    findings = Findings()
    performance, user = read_performance(sources, findings)
    hints = read_hints(sources.hints, findings)
    if machine and machine.kind == "mps" and machine.num_devices > 1:
        findings.refuse("device", f"mps is one device, not {machine.num_devices}")
    settings, folded = _read_layers(sources, user, performance, components, machine, findings)
    refuse_contradictions(settings, findings)
    decisions = _decide(settings, performance, hints, components, machine, findings)
    note_effects(settings, decisions, components, findings)
    note_small_card(performance, hints, components, machine, findings)
    if findings.problems:
        raise ConfigError(findings.problems)
    placements = {name: _placement(name, components[name], decision) for name, decision in decisions.items()}
    planned = performance.mode == AUTO
    return Resolution(MappingProxyType(placements), tuple(findings.notes), tuple(folded), planned)


def _read_layers(
    sources: Sources,
    user: Iterable[Entry],
    performance: Performance,
    components: Components,
    machine: MachineFacts | None,
    findings: Findings,
) -> tuple[list[Setting], list[Entry]]:
    """Every written setting, and the entries that legacy keys became outside residency."""
    settings: list[Setting] = []
    legacy: list[Entry] = []
    layers = {"user": user, "preset": sources.preset, "pipeline": sources.pipeline}
    for layer, entries in layers.items():
        for entry in in_layer(entries, layer):
            read = read_canonical(entry, components, findings)
            settings += read or []
            legacy += [entry] if read is None else []
    folded = fold_legacy(legacy, components, machine.kind if machine else None, findings)
    settings += folded.settings
    if performance.replaces:
        settings = [
            setting if setting.origin.layer == "user" else replace(setting, replaced_by=performance.replaces)
            for setting in settings
        ]
    return settings, folded.others


def _decide(
    written: list[Setting],
    performance: Performance,
    hints: Hints,
    components: Components,
    machine: MachineFacts | None,
    findings: Findings,
) -> dict[str, Decision]:
    fsdp = next((setting for setting in written if setting.subject == "mode" and setting.step == FSDP), None)
    settings = written + automatic_settings(performance, hints, components, machine, fsdp is not None)
    rules = Rules(machine, fsdp, findings)
    planned = performance.mode == AUTO
    decisions = {name: _decide_one(name, facts, settings, rules, planned) for name, facts in components.items()}
    rules.finish()
    return decisions


def _decide_one(name: str, facts: ComponentFacts, settings: list[Setting], rules: Rules, planned: bool) -> Decision:
    ranked = {subject: _ranked(name, subject, settings) for subject in ("mode", *KNOBS)}
    winners = {subject: _winner(candidates) for subject, candidates in ranked.items()}
    asked = winners["mode"]
    overrides = rules.on_component(name, facts, asked)
    possible = overrides[-1].mode if overrides else asked.text if asked else RESIDENT
    overrides = overrides + rules.on_machine(name, possible)
    mode = overrides[-1].mode if overrides else possible
    return Decision(mode, possible, ranked, winners, tuple(overrides), planned)


def _ranked(name: str, subject: str, settings: list[Setting]) -> list[Setting]:
    """The candidates of one subject, best first; replaced ones last."""
    candidates = [setting for setting in settings if setting.subject == subject and name in setting.targets]
    return sorted(candidates, key=lambda setting: (bool(setting.replaced_by), *setting.order(name)))


def _winner(candidates: list[Setting]) -> Setting | None:
    return candidates[0] if candidates and not candidates[0].replaced_by else None


def _placement(name: str, facts: ComponentFacts, decision: Decision) -> Placement:
    reasons = _mode_reasons(decision)
    if decision.mode not in (AUTO, LAYERWISE):
        for knob in KNOBS:
            reasons += _idle_reasons(name, knob, decision)
        return Placement(component=name, group=facts.group, mode=decision.mode, reasons=tuple(reasons))
    for knob in KNOBS:
        reasons += _knob_reasons(knob, decision, facts)
    return Placement(
        component=name,
        group=facts.group,
        mode=decision.mode,
        prefetch=_knob("prefetch", decision, facts),
        resident=_knob("resident", decision, facts),
        policy=_word("policy", decision),
        lifetime=_word("lifetime", decision),
        reasons=tuple(reasons),
    )


def _knob(knob: str, decision: Decision, facts: ComponentFacts) -> Knob | None:
    value = _value(knob, decision)
    assert not isinstance(value, str)
    return None if value is None else to_knob(knob, value, facts.stack_lengths)


def _word(knob: str, decision: Decision) -> str | None:
    value = _value(knob, decision)
    assert not isinstance(value, Amount)
    return value


def _value(knob: str, decision: Decision) -> Amount | str | None:
    """The value of the winner, else the default; None: the planner's."""
    winner = decision.winners[knob]
    if winner is None and decision.planned:
        return None
    return winner.value if winner else DEFAULTS[knob]


def _mode_reasons(decision: Decision) -> list[Reason]:
    """Rules first, the last of them the winner; then every candidate, best first."""
    overrides = decision.overrides[::-1]
    reasons = [_rule_reason(override, won=index == 0) for index, override in enumerate(overrides)]
    winner = decision.winners["mode"]
    beaten_by = f"overruled by {overrides[0].rule}" if overrides else ""
    if winner is None:
        reasons.append(Reason("mode", RESIDENT, _DEFAULT, "", not overrides, beaten_by or "nobody said otherwise"))
    return reasons + _candidates("mode", decision, beaten_by)


def _rule_reason(override: Override, won: bool) -> Reason:
    origin = Origin("automatic", f"rule: {override.rule}")
    return Reason("mode", override.mode, origin, override.rule, won, override.why)


def _knob_reasons(knob: str, decision: Decision, facts: ComponentFacts) -> list[Reason]:
    winner = decision.winners[knob]
    if winner is None and decision.planned:
        planner = Reason(knob, AUTO, Origin("automatic", ""), "", True, "left to the planner")
        return [planner, *_candidates(knob, decision, "")]
    if winner is None:
        default = DEFAULTS[knob]
        text = default.written if isinstance(default, Amount) else default
        return [Reason(knob, text, _DEFAULT, "", True), *_candidates(knob, decision, "")]
    first, *others = _candidates(knob, decision, "")
    if knob in AMOUNTS and isinstance(winner.value, Amount):
        first = replace(first, note=remark(winner.value, facts.stack_lengths))
    return [first, *others]


def _idle_reasons(name: str, knob: str, decision: Decision) -> list[Reason]:
    return _candidates(knob, decision, f"no effect: {name} is {decision.mode}")


def _candidates(subject: str, decision: Decision, beaten_by: str) -> list[Reason]:
    """One reason for each candidate; the first wins unless `beaten_by` says what stands above them all."""
    winner = decision.winners[subject]
    reasons = []
    for setting in decision.ranked[subject]:
        won = setting is winner and not beaten_by
        if won:
            note = setting.why
        elif setting is winner or (beaten_by and subject != "mode"):
            note = beaten_by
        elif setting.replaced_by:
            note = f"replaced by {setting.replaced_by}"
        else:
            note = f"beaten by {winner.name}" if winner else beaten_by
        reasons.append(Reason(subject, setting.text, setting.origin, setting.key, won, note))
    return reasons
