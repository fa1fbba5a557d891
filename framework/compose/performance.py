"""The automatic layer: what `performance_mode` decides, with the pipeline's hints. No torch."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from framework.compose.knobs import Amount, read_amount
from framework.compose.legacy import legacy_name
from framework.compose.machine_rules import AUTO
from framework.compose.selectors import EVERY, fold_selector, scope_targets, targets_of
from framework.compose.settings import Components, Findings, Setting
from framework.compose.sources import Entry, MachineFacts, Sources
from framework.compose.spellings import quoted, read_names
from framework.errors import Origin, did_you_mean
from framework.registry import fold_name

MANUAL, SPEED, MEMORY = "manual", "speed", "memory"
CHOICES = (MANUAL, AUTO, SPEED, MEMORY)
GIB = 1024**3
PRESET = "residency"


@dataclass(frozen=True, slots=True, kw_only=True)
class Hints:
    """What a pipeline says of itself for the automatic layer; memory in GiB."""

    keep_resident_min_available_gib: float | None = None
    keep_resident_components: tuple[str, ...] = ()
    dit_layerwise_modes: tuple[str, ...] = ()
    auto_prefetch: Amount | None = None


@dataclass(frozen=True, slots=True)
class Performance:
    """The chosen performance mode, or None when nobody chose one."""

    mode: str | None = None
    entry: Entry | None = None

    @property
    def replaces(self) -> str:
        """What a replaced setting's trail says; empty when the preset and the pipeline's defaults stay."""
        return f"{self.key}={self.mode}" if self.mode in (AUTO, SPEED, MEMORY) else ""

    @property
    def key(self) -> str:
        """The key that chose it, in today's spelling."""
        return PRESET if self.entry is not None and self.entry.key == PRESET else "performance_mode"


def read_performance(sources: Sources, findings: Findings) -> tuple[Performance, list[Entry]]:
    """The performance mode, and the user's other entries; refuses contradictions and a named preset."""
    entries = [entry for entry in sources.user if legacy_name(entry.key) == "performance_mode"]
    others = [entry for entry in sources.user if legacy_name(entry.key) != "performance_mode"]
    entries += [sources.performance_mode] if sources.performance_mode else []
    if fold_name(sources.preset_name) == AUTO:
        entries.insert(0, Entry(PRESET, AUTO, Origin("preset", sources.preset_where)))
    modes = [(mode, entry) for entry in entries if (mode := _read_mode(entry, findings))]
    if not modes:
        return Performance(), others
    chosen = Performance(*modes[0])
    first = modes[0][1]
    for mode, other in modes[1:]:
        if mode != chosen.mode:
            reason = f"{quoted(other.value)} contradicts {first.key}={first.value} ({first.origin.where})"
            findings.refuse(other.key, reason, other.origin, "keep one of them")
    _say(chosen, sources, findings)
    return chosen, others


def read_hints(hints: Mapping[str, Any], findings: Findings) -> Hints:
    """The pipeline's hints, checked; null entries are unset."""
    readers: dict[str, Callable[[Any], Any]] = {
        "keep_resident_min_available_gib": _gib,
        "keep_resident_components": read_names,
        "dit_layerwise_modes": read_names,
        "auto_prefetch": _prefetch,
    }
    values: dict[str, Any] = {}
    for name, value in hints.items():
        key = f"pipeline.hints.{name}"
        if name not in readers:
            findings.refuse(key, "unknown hint", hint=did_you_mean(name, readers))
        elif value is not None:
            try:
                values[name] = readers[name](value)
            except ValueError as error:
                findings.refuse(key, str(error))
    return Hints(**values)


def automatic_settings(
    performance: Performance, hints: Hints, components: Components, machine: MachineFacts | None, fsdp: bool
) -> list[Setting]:
    """The settings of the automatic layer; empty for manual and where nobody chose a mode."""
    if performance.mode == AUTO:
        return [_rule(performance, AUTO, dict.fromkeys(components, EVERY), "left to the planner")]
    if performance.mode == SPEED:
        return [_rule(performance, "resident", dict.fromkeys(components, EVERY), "speed keeps everything")]
    if performance.mode == MEMORY:
        streams = machine is None or machine.kind in ("cuda", "sim")
        rules = _streaming(performance, hints, components, fsdp) if streams else _moving(performance, components)
        return [*rules, _rule(performance, "resident", dict.fromkeys(components, EVERY), "the rest")]
    return []


def note_small_card(
    performance: Performance, hints: Hints, components: Components, machine: MachineFacts | None, findings: Findings
) -> None:
    """Speed on a card below the pipeline's own threshold is honoured, with a line."""
    least, free = hints.keep_resident_min_available_gib, machine.available_bytes if machine else None
    if performance.mode != SPEED or performance.entry is None or least is None or free is None:
        return
    kept = [name for each in hints.keep_resident_components for name in targets_of(fold_selector(each), components)]
    if kept and free < least * GIB:
        findings.note(
            f"speed keeps {', '.join(dict.fromkeys(kept))} resident; the pipeline advises {least:g} GiB of free device "
            f"memory for that, and {free / GIB:.1f} GiB is free",
            "performance_mode",
            performance.entry.origin,
        )


def _streaming(performance: Performance, hints: Hints, components: Components, fsdp: bool) -> list[Setting]:
    """Memory mode where layers can be streamed beside the compute."""
    rules = [
        _rule(performance, "layerwise-offload", scope_targets(scope, components), f"memory streams {scope}")
        for scope in ("text_encoder", "image_encoder", "vae_layerwise")
    ]
    if fsdp:  # the DiTs and their helpers stay whole on the device
        return rules
    helpers = scope_targets("dit_cpu", components)
    if MEMORY in hints.dit_layerwise_modes:
        dits = scope_targets("dit", components)
        helpers = {name: rank for name, rank in helpers.items() if name not in dits}
        rules.append(_rule(performance, "layerwise-offload", dits, "hints.dit_layerwise_modes lists memory"))
        if hints.auto_prefetch is not None:
            rules.append(_rule(performance, hints.auto_prefetch, dits, "hints.auto_prefetch", "prefetch"))
    return [*rules, _rule(performance, "component-offload", helpers, "memory moves the DiTs whole, and their helpers")]


def _moving(performance: Performance, components: Components) -> list[Setting]:
    """Memory mode where nothing can be streamed."""
    scopes = ("dit_cpu", "text_encoder", "image_encoder")
    return [
        _rule(performance, "component-offload", scope_targets(scope, components), f"memory moves {scope} whole")
        for scope in scopes
    ]


def _rule(
    performance: Performance, value: str | Amount, targets: Mapping[str, int], why: str, subject: str = "mode"
) -> Setting:
    assert performance.entry is not None
    origin = Origin("automatic", performance.entry.origin.where)
    return Setting(
        subject=subject, value=value, selector=why, key=performance.key, origin=origin, targets=targets, why=why
    )


def _read_mode(entry: Entry, findings: Findings) -> str | None:
    value = entry.value
    mode = fold_name(value) if isinstance(value, str) else ""
    if mode in CHOICES:
        return mode
    hint = did_you_mean(value, CHOICES) if isinstance(value, str) else f"choose from {', '.join(CHOICES)}"
    findings.refuse(entry.key, f"{quoted(value)} is not a performance mode", entry.origin, hint)
    return None


def _say(chosen: Performance, sources: Sources, findings: Findings) -> None:
    """The line that a performance mode replaces two layers, and the refusal beside a named preset."""
    entry = chosen.entry
    assert entry is not None
    if fold_selector(entry.key) == "mode":
        findings.note(f"legacy key, read as performance_mode={chosen.mode}", f"mode={entry.value}", entry.origin)
    if not chosen.replaces:
        return
    preset = fold_name(sources.preset_name)
    if preset not in ("none", "auto", ""):
        reason = f"'{chosen.mode}' replaces the preset, so it cannot stand beside residency={sources.preset_name}"
        findings.refuse("performance_mode", reason, entry.origin, "keep one of them")
    more = "; the planner places what you do not" if chosen.mode == AUTO else ""
    hints = " and hints" if chosen.mode == AUTO else ""
    findings.note(
        f"{chosen.mode} replaces the residency preset and the pipeline's own residency defaults{hints}; "
        f"only keys of your own beat it{more}",
        chosen.key,
        entry.origin,
    )


def _prefetch(value: Any) -> Amount:
    return read_amount("prefetch", value)


def _gib(value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < float("inf"):
        raise ValueError(f"{quoted(value)} is not a number of GiB")
    return float(value)
