"""Single residency settings in one form, whatever key they came from, and how they rank. No torch."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from framework.compose.knobs import KNOBS, Amount, read_knob
from framework.compose.selectors import GROUPS, fold_selector, is_known, targets_of
from framework.compose.sources import ComponentFacts, Entry
from framework.compose.spellings import read_mode, read_pairs, shown
from framework.errors import Origin, Problem, did_you_mean

LAYERS = ("user", "preset", "pipeline", "automatic", "default")
CANONICAL = 0  # the step of every canonical setting; legacy settings have later ones

MODE_KEYS = ("component_residency", "residency.modes", "pipeline.defaults.residency")
KNOB_KEYS = ("layerwise", "residency.layerwise", "pipeline.defaults.layerwise")

Components = Mapping[str, ComponentFacts]


@dataclass(slots=True)
class Findings:
    """What reading and resolving have to tell: problems stop the run, notes are one line each."""

    problems: list[Problem] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def refuse(self, key: str, reason: str, origin: Origin | None = None, hint: str = "") -> None:
        """Add a problem, once."""
        problem = Problem(key, reason, origin.where if origin else "", hint)
        if problem not in self.problems:
            self.problems.append(problem)

    def note(self, text: str, key: str = "", origin: Origin | None = None) -> None:
        """Add one line, once, with its place in front as in a problem."""
        line = str(Problem(key, text, origin.where if origin else ""))
        if line not in self.notes:
            self.notes.append(line)


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """One value for `subject` (mode or a knob) of the components in `targets`.

    `step` orders settings of one layer: 0 for canonical keys, later for legacy ones. `replaced_by` is set for a
    setting that a performance mode took out of play; `why` explains a setting of the automatic layer.
    """

    subject: str
    value: str | Amount
    selector: str
    key: str
    origin: Origin
    targets: Mapping[str, int]
    step: int = CANONICAL
    replaced_by: str = ""
    why: str = ""

    @property
    def layer(self) -> int:
        """The layer's place, 0 for the user's."""
        return LAYERS.index(self.origin.layer)

    @property
    def text(self) -> str:
        """The value as written."""
        return self.value.written if isinstance(self.value, Amount) else self.value

    @property
    def name(self) -> str:
        """The setting as a message names it, with its place."""
        if self.why:
            return f"{self.key} ({self.origin.where}): {self.why}"
        return f"{self.key}={self.text} ({self.origin.where})" if self.origin.where else f"{self.key}={self.text}"

    def order(self, component: str) -> tuple[int, int, int, str, str]:
        """Sort key among the settings of one component; the last two only make ties stable."""
        return (self.layer, self.step, self.targets[component], self.key, self.origin.where)


def fold_key(key: str) -> str:
    """A dotted key with case and `-` against `_` folded in every part."""
    return ".".join(fold_selector(part) for part in key.split("."))


def split_key(key: str, heads: Iterable[str]) -> tuple[str, str] | None:
    """`(head, rest)` if a folded key is one of `heads` or lies below one."""
    for head in heads:
        if key == head or key.startswith(head + "."):
            return head, key[len(head) + 1 :]
    return None


def in_layer(entries: Iterable[Entry], layer: str) -> list[Entry]:
    """The entries with their origin put into `layer`, in an order that does not depend on how they came."""
    placed = [replace(entry, origin=replace(entry.origin, layer=layer)) for entry in entries]
    return sorted(placed, key=lambda entry: (fold_key(entry.key), shown(entry.value), entry.origin.where, entry.key))


def read_canonical(entry: Entry, components: Components, findings: Findings) -> list[Setting] | None:
    """The settings of one canonical entry; None when its key is not a canonical one."""
    key = fold_key(entry.key)
    found = split_key(key, MODE_KEYS)
    if found:
        return _guarded(entry, findings, lambda: _modes(entry, found[0], found[1], components, findings))
    below = split_key(key, KNOB_KEYS)
    if below:
        return _guarded(entry, findings, lambda: _knob_maps(entry, below[0], below[1], components, findings))
    return None


def make_setting(
    subject: str, value: Any, selector: str, entry: Entry, key: str, components: Components, findings: Findings
) -> list[Setting]:
    """One checked canonical setting in a list, or an empty list and a problem."""
    if not is_known(selector, components):
        refuse_unknown(selector, key, entry.origin, components, findings)
        return []
    try:
        checked = read_mode(value) if subject == "mode" else read_knob(subject, value)
    except ValueError as error:
        findings.refuse(key, str(error), entry.origin)
        return []
    targets = targets_of(selector, components)
    return [Setting(subject=subject, value=checked, selector=selector, key=key, origin=entry.origin, targets=targets)]


def refuse_unknown(
    selector: str, key: str, origin: Origin, components: Components, findings: Findings, words: Iterable[str] = ()
) -> None:
    """The problem of a name that this pipeline does not have; `words` are further names legal here."""
    names = ", ".join(sorted(components)) or "none"
    hint = did_you_mean(selector, [*components, *GROUPS, "all", *words])
    findings.refuse(
        key,
        f"the pipeline has no component or group '{selector}' (its components: {names})",
        origin,
        hint if hint.startswith("did") else "",
    )


def refuse_contradictions(settings: Iterable[Setting], findings: Findings) -> None:
    """Two settings of one layer and kind for the same selector with different values: refused, naming both origins."""
    first: dict[tuple[object, ...], Setting] = {}
    for setting in settings:
        identity = (setting.layer, setting.step, setting.subject, setting.selector)
        known = first.setdefault(identity, setting)
        if known.value != setting.value:
            reason = f"'{setting.text}' contradicts {known.name}"
            findings.refuse(setting.key, reason, setting.origin, "keep one of them")


def _guarded(entry: Entry, findings: Findings, read: Callable[[], list[Setting]]) -> list[Setting]:
    try:
        return read()
    except ValueError as error:
        findings.refuse(entry.key, str(error), entry.origin)
        return []


def _modes(entry: Entry, head: str, rest: str, components: Components, findings: Findings) -> list[Setting]:
    if rest:
        return make_setting("mode", entry.value, rest, entry, f"{head}.{rest}", components, findings)
    settings = []
    for selector, value in read_pairs(entry.value, "COMPONENT=MODE"):
        settings += make_setting("mode", value, selector, entry, f"{head}.{selector}", components, findings)
    return settings


def _knob_maps(entry: Entry, head: str, rest: str, components: Components, findings: Findings) -> list[Setting]:
    selector, _, knob = rest.partition(".")
    if knob:
        return _knob(entry, head, selector, knob, entry.value, components, findings)
    maps = [(selector, entry.value)] if selector else list(read_pairs(entry.value, "{COMPONENT: {KNOB: VALUE}}"))
    settings = []
    for name, knobs in maps:
        for knob, value in read_pairs(knobs, "KNOB=VALUE"):
            settings += _knob(entry, head, name, knob, value, components, findings)
    return settings


def _knob(
    entry: Entry, head: str, selector: str, knob: str, value: Any, components: Components, findings: Findings
) -> list[Setting]:
    key = f"{head}.{selector}.{knob}"
    if knob not in KNOBS:
        findings.refuse(key, f"unknown knob '{knob}'", entry.origin, did_you_mean(knob, KNOBS))
        return []
    return make_setting(knob, value, selector, entry, key, components, findings)
