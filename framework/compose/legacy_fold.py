"""Folds legacy keys into settings, each with one line that names the old and the new key. No torch."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from framework.compose.knobs import Amount
from framework.compose.legacy import LEGACY_KEYS, legacy_name, refusal
from framework.compose.legacy_case import READERS, LegacyCase, read_tuning
from framework.compose.selectors import (
    ALL,
    EVERY,
    EXACT,
    GROUP,
    fold_selector,
    is_known,
    scope_targets,
    targets_of,
)
from framework.compose.settings import Components, Findings, Setting, refuse_unknown
from framework.compose.sources import Entry
from framework.compose.spellings import quoted, read_names, shown
from framework.errors import did_you_mean

# Steps of the legacy order for modes; knobs are ordered by how closely they name a component, at step 1.
LAYERWISE, CPU_LIST, CPU_FLAG, NOT_LAYERWISE, FSDP = range(1, 6)
TUNING = 1

_CPU_LIST_SCOPES = {
    "dit": "dit",
    "text_encoder": "text_encoder",
    "image_encoder": "image_encoder_list",
    "vae": "vae_list",
}
_LAYERWISE_LIST_SCOPES = {
    "dit": "dit",
    "text_encoder": "text_encoder",
    "image_encoder": "image_encoder",
    "vae": "vae_layerwise",
}
_DEFAULT_LIST = ("text_encoder", "image_encoder", "vae")


@dataclass(slots=True)
class Folded:
    """What the legacy keys of all layers became: settings, and entries for keys outside residency."""

    settings: list[Setting] = field(default_factory=list)
    others: list[Entry] = field(default_factory=list)


def fold_legacy(entries: Iterable[Entry], components: Components, device: str | None, findings: Findings) -> Folded:
    """Fold every legacy entry; refuse keys that have no counterpart and those that nobody knows."""
    folded = Folded()
    values: dict[tuple[str, str], tuple[Entry, Any]] = {}
    for entry in entries:
        name = legacy_name(entry.key)
        if name is None:
            _refuse_key(entry, findings)
            continue
        head, _, rest = entry.key.partition(".")
        case = LegacyCase(
            name=name,
            spec=LEGACY_KEYS[name],
            entry=entry,
            rest=fold_selector(rest),
            components=components,
            findings=findings,
            device=device,
        )
        if rest and case.spec.kind != "map":
            findings.refuse(entry.key, f"'{head}' takes no part '{rest}'", entry.origin)
            continue
        _fold_one(case, folded, values)
    return folded


def _fold_one(case: LegacyCase, folded: Folded, values: dict[tuple[str, str], tuple[Entry, Any]]) -> None:
    try:
        value = READERS[case.spec.kind](case)
    except ValueError as error:
        case.findings.refuse(case.entry.key, str(error), case.entry.origin)
        return
    if case.spec.kind != "map":
        known, first = values.setdefault((case.entry.origin.layer, case.name), (case.entry, value))
        if first != value:
            reason = f"{quoted(case.entry.value)} contradicts {known.key}={shown(known.value)} ({known.origin.where})"
            case.findings.refuse(case.entry.key, reason, case.entry.origin, "keep one of them")
            return
    made = _FOLDS[case.spec.kind](case, value)
    folded.settings += [each for each in made if isinstance(each, Setting)]
    folded.others += [each for each in made if isinstance(each, Entry)]


def _refuse_key(entry: Entry, findings: Findings) -> None:
    instead = refusal(entry.key)
    if instead:
        findings.refuse(entry.key, "this key has no counterpart here", entry.origin, instead)
    else:
        findings.refuse(entry.key, "not a residency key", entry.origin, did_you_mean(entry.key, LEGACY_KEYS))


# Folds: settings or entries of a read value, and the line that says so.


def _fold_cpu_flag(case: LegacyCase, value: bool) -> list[Setting]:
    mode = "component-offload" if value else "resident"
    targets = scope_targets(case.spec.scope, case.components)
    case.note_modes(mode, targets)
    return [case.setting("mode", mode, targets, CPU_FLAG)]


def _fold_layerwise_flag(case: LegacyCase, value: bool) -> list[Setting]:
    targets = scope_targets("dit" if value else "dit_cpu", case.components)
    mode = "layerwise-offload" if value else "resident"
    case.note_modes(mode, targets, "" if value else " where nothing else of yours places them")
    return [case.setting("mode", mode, targets, LAYERWISE if value else NOT_LAYERWISE)]


def _fold_cpu_list(case: LegacyCase, names: frozenset[str]) -> list[Setting]:
    if "none" in names:
        if len(names) > 1:
            _refuse_company(case)
            return []
        targets = dict.fromkeys(case.components, EVERY)
        case.note_modes("resident", targets)
        return [case.setting("mode", "resident", targets, CPU_LIST, "none")]
    return _fold_list(case, names, "component-offload", CPU_LIST, _CPU_LIST_SCOPES, ("none",))


def _refuse_company(case: LegacyCase) -> None:
    """`none` beside other names is a contradiction in one value."""
    case.findings.refuse(case.entry.key, "'none' cannot be combined with other names", case.entry.origin)


def _fold_layerwise_list(case: LegacyCase, names: frozenset[str]) -> list[Setting]:
    if "default" in names:
        names = names - {"default"} | frozenset(_DEFAULT_LIST)
    quiet = frozenset(_DEFAULT_LIST) if "default" in read_names(case.entry.value) else frozenset()
    return _fold_list(case, names, "layerwise-offload", LAYERWISE, _LAYERWISE_LIST_SCOPES, ("default",), quiet)


def _fold_list(
    case: LegacyCase,
    names: frozenset[str],
    mode: str,
    step: int,
    scopes: Mapping[str, str],
    words: tuple[str, ...],
    quiet: frozenset[str] = frozenset(),
) -> list[Setting]:
    """One setting for each name; group names are a union, so every matching name counts.

    Names in `quiet` stand for a wider word, and are dropped where they match nothing.
    """
    settings = []
    for name in sorted(names):
        targets = _list_targets(name, scopes, case)
        if targets is None:
            refuse_unknown(name, case.entry.key, case.entry.origin, case.components, case.findings, words)
        elif targets or name not in quiet:
            settings.append(case.setting("mode", mode, targets, step, name))
    covered = {name: EXACT for setting in settings for name in setting.targets}
    if settings:
        case.note_modes(mode, {name: EXACT for name in case.components if name in covered})
    return settings


def _list_targets(name: str, scopes: Mapping[str, str], case: LegacyCase) -> dict[str, int] | None:
    targets = scope_targets(scopes[name], case.components, GROUP) if name in scopes else {}
    if name == ALL:
        targets = dict.fromkeys(case.components, EVERY)
    targets |= {component: EXACT for component in case.components if fold_selector(component) == name}
    return targets if targets or name in scopes or name == ALL else None


def _fold_scalar(case: LegacyCase, value: Amount | str) -> list[Setting]:
    text = value.written if isinstance(value, Amount) else value
    case.note(f"read as {case.spec.new}={text}{_aside(case)}")
    return [case.setting(case.spec.knob, value, scope_targets("dit", case.components), TUNING)]


def _fold_map(case: LegacyCase, pairs: tuple[tuple[str, Any], ...]) -> list[Setting]:
    settings: list[Setting] = []
    for selector, written in pairs:
        key = f"{case.name}.{selector}"
        if not is_known(selector, case.components):
            refuse_unknown(selector, key, case.entry.origin, case.components, case.findings)
            continue
        try:
            value = read_tuning(case, written)
        except ValueError as error:
            case.findings.refuse(key, str(error), case.entry.origin)
            continue
        targets = targets_of(selector, case.components)
        settings.append(case.setting(case.spec.knob, value, targets, TUNING, selector))
    if settings:
        new = ", ".join(
            f"layerwise.{each.selector.partition(':')[2]}.{case.spec.knob}={each.text}" for each in settings
        )
        case.note(f"read as {new}{_aside(case)}")
    return settings


def _aside(case: LegacyCase) -> str:
    """The part of a folding line that says what else the legacy key brings."""
    return " with the policy strided, unless one is given" if case.spec.knob == "resident" else ""


def _fold_fsdp(case: LegacyCase, value: bool) -> list[Setting]:
    if not value:
        case.note("off is how it always is here; nothing to set")
        return []
    if case.device == "mps":
        case.note("switched off: mps is one device")
        return []
    targets = scope_targets(case.spec.scope, case.components)
    where = " where nothing else of yours places them; whole copies are kept, nothing is sharded"
    case.note_modes("resident", targets, where)
    return [case.setting("mode", "resident", targets, FSDP)]


def _fold_pin(case: LegacyCase, value: bool) -> list[Entry]:
    if value:
        unpinned = case.device in ("cpu", "mps")
        case.note(f"no effect: nothing is pinned on {case.device}" if unpinned else "is the default; nothing to set")
        return []
    case.note("read as budget.pinned=0")
    return [Entry("budget.pinned", 0, case.entry.origin)]


def _fold_warmup(case: LegacyCase, value: str) -> list[Entry]:
    case.note(f"read as warmup={value}")
    return [Entry("warmup", value, case.entry.origin)]


def _fold_compile(case: LegacyCase, value: bool) -> list[Entry]:
    case.note("false is how it always is here; nothing to set (placement is component_residency)")
    return []


_FOLDS: Mapping[str, Callable[[LegacyCase, Any], list[Any]]] = {
    "cpu_flag": _fold_cpu_flag,
    "cpu_list": _fold_cpu_list,
    "layerwise_flag": _fold_layerwise_flag,
    "layerwise_list": _fold_layerwise_list,
    "scalar": _fold_scalar,
    "map": _fold_map,
    "fsdp": _fold_fsdp,
    "pin": _fold_pin,
    "compile": _fold_compile,
    "warmup": _fold_warmup,
}
