"""One legacy entry on its way into settings, and the reading of its value. No torch."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from framework.compose.knobs import Amount, read_knob
from framework.compose.legacy import LegacyKey
from framework.compose.selectors import briefest, fold_selector
from framework.compose.settings import Components, Findings, Setting
from framework.compose.sources import Entry
from framework.compose.spellings import quoted, read_flag, read_names, read_pairs, shown
from framework.registry import fold_name


@dataclass(frozen=True, slots=True, kw_only=True)
class LegacyCase:
    """One legacy entry on its way; `name` is the key without its alias."""

    name: str
    spec: LegacyKey
    entry: Entry
    rest: str
    components: Components
    findings: Findings
    device: str | None

    def setting(self, subject: str, value: Any, targets: Mapping[str, int], step: int, selector: str = "") -> Setting:
        return Setting(
            subject=subject,
            value=value,
            selector=f"{self.name}:{selector}",
            key=f"{self.name}.{selector}" if self.spec.kind == "map" else self.name,
            origin=self.entry.origin,
            targets=targets,
            step=step,
        )

    def note(self, text: str) -> None:
        written = f"{fold_selector(self.entry.key.partition('.')[0])}={shown(self.entry.value)}"
        if self.rest:
            written = f"{fold_selector(self.entry.key)}={shown(self.entry.value)}"
        self.findings.note(f"legacy key, {text}", written, self.entry.origin)

    def note_modes(self, mode: str, targets: Mapping[str, int], where: str = "") -> None:
        if targets:
            pairs = ",".join(f"{selector}={mode}" for selector in briefest(targets, self.components))
            self.note(f"read as component_residency={pairs}{where}")
        else:
            self.note("would be component_residency; this pipeline has no component it covers")


# Readers: the value of an entry in one comparable form.


def _read_list(case: LegacyCase) -> frozenset[str]:
    return frozenset(read_names(case.entry.value))


def _read_scalar(case: LegacyCase) -> Amount | str:
    return read_tuning(case, case.entry.value)


def _read_map(case: LegacyCase) -> tuple[tuple[str, Any], ...]:
    if case.rest:
        return ((case.rest, case.entry.value),)
    return tuple(read_pairs(case.entry.value, "COMPONENT=VALUE"))


def _read_warmup(case: LegacyCase) -> str:
    value = case.entry.value
    text = fold_name(value) if isinstance(value, str) else value
    if text in ("no", "false", False):
        return "off"
    if text in ("off", "request"):
        return str(text)
    if text == "server":
        raise ValueError("there is no server here; use warmup=request")
    raise ValueError(f"{quoted(value)} is not a warm-up mode; choose from off, request")


def _read_compile(case: LegacyCase) -> bool:
    if read_flag(case.entry.value):
        raise ValueError(
            "placement never changes during a run; use numerics.compile=blocks "
            "with component_residency=dit=layerwise-offload"
        )
    return False


def read_tuning(case: LegacyCase, value: Any) -> Amount | str:
    """A knob's value with the legacy meaning of prefetch 0."""
    checked = read_knob(case.spec.knob, value)
    if case.spec.knob != "prefetch" or not isinstance(checked, Amount) or case.device == "mps":
        return checked
    return replace(checked, kind="count", number=1, written="1") if checked.number == 0 else checked


def _flag(case: LegacyCase) -> bool:
    return read_flag(case.entry.value)


def _misplaced(case: LegacyCase) -> None:
    raise ValueError("belongs to your own keys, not to a preset or a pipeline")


READERS: Mapping[str, Callable[[LegacyCase], Any]] = {
    "cpu_flag": _flag,
    "cpu_list": _read_list,
    "layerwise_flag": _flag,
    "layerwise_list": _read_list,
    "scalar": _read_scalar,
    "map": _read_map,
    "fsdp": _flag,
    "pin": _flag,
    "compile": _read_compile,
    "warmup": _read_warmup,
    "performance": _misplaced,
}
