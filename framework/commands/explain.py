"""`explain`: where every component lives, and what beat what. No torch."""

import json
import shlex
from collections.abc import Iterable, Mapping
from typing import Any

from framework.commands.table import format_table
from framework.compose.arguments import COMPOSING, Flags
from framework.compose.numerics import numerics_line
from framework.spec import Knob, Placement, Reason, RunSpec

SUMMARY = "Show the placement of every component with the full reason trail, or the difference of two configs."
EXAMPLES = (
    "framework explain pipeline=wan2 residency=low_vram",
    "framework explain pipeline=wan2 component_residency.vae=component-offload --json",
    'framework explain pipeline=wan2 --diff "residency=low_vram" "residency=balanced"',
)
ACCEPTED = COMPOSING | {"json", "diff"}
PROMISES = "residency.fits"
"""What a preset says of itself: it decides nothing."""
COLUMNS = ("component", "group", "mode", "prefetch", "resident", "policy", "lifetime")


def main(overrides: list[str], flags: Flags) -> int:
    """Print the table and the trails; with `--diff A B` only what differs between the two override lists."""
    from framework.compose.composer import compose

    if flags.diff:
        first, second = (compose([*overrides, *shlex.split(words)], flags) for words in flags.diff)
        print(_diff(first, second, flags))
        return 0
    spec = compose(overrides, flags)
    if flags.json:
        print(json.dumps(to_json(spec), indent=2, ensure_ascii=False))
        return 0
    print(format_table(COLUMNS, [_row(placement) for placement in spec.placements.values()]))
    if not flags.quiet:
        print(numerics_line(spec.numerics))
    for line in _remarks(spec):
        print(line)
    if not flags.quiet:
        for placement in spec.placements.values():
            print(f"\n{placement.component}")
            for reason in placement.reasons:
                print(f"  {_reason(reason)}")
    return 0


def to_json(spec: RunSpec) -> dict[str, Any]:
    """The placements as plain data, reasons included."""
    return {
        "pipeline": spec.pipeline.name,
        "components": {name: _placement_json(placement) for name, placement in spec.placements.items()},
        "notes": list(spec.notes),
    }


def _placement_json(placement: Placement) -> dict[str, Any]:
    knobs = {"prefetch": placement.prefetch, "resident": placement.resident}
    return {
        "group": placement.group,
        "mode": placement.mode,
        **{name: None if knob is None else _knob_json(knob) for name, knob in knobs.items()},
        "policy": placement.policy,
        "lifetime": placement.lifetime,
        "reasons": [_reason_json(reason) for reason in placement.reasons],
    }


def _knob_json(knob: Knob) -> dict[str, Any]:
    layers = None if knob.layers is None else list(knob.layers)
    return {"written": knob.written, "layers": layers, "size_bytes": knob.size_bytes}


def _reason_json(reason: Reason) -> dict[str, Any]:
    return {
        "subject": reason.subject,
        "value": reason.value,
        "key": reason.key,
        "layer": reason.origin.layer,
        "where": reason.origin.where,
        "won": reason.won,
        "note": reason.note,
    }


def _row(placement: Placement) -> tuple[str, ...]:
    return (
        placement.component,
        placement.group or "(none)",
        placement.mode,
        _knob(placement.prefetch),
        _knob(placement.resident),
        placement.policy or "-",
        placement.lifetime or "-",
    )


def _knob(knob: Knob | None) -> str:
    """Whole layers where they are known, `+` between block lists; else the amount as written."""
    if knob is None:
        return "-"
    if knob.layers is None:
        return knob.written
    counts = "+".join(str(count) for count in knob.layers)
    return counts if counts == knob.written else f"{counts} ({knob.written})"


def _remarks(spec: RunSpec) -> Iterable[str]:
    lonely = [name for name, placement in spec.placements.items() if placement.group is None]
    if lonely:
        yield f"in no group, reached by name or `all` only: {', '.join(lonely)}"
    yield from (f"note: {note}" for note in spec.notes)


def _reason(reason: Reason) -> str:
    mark = "*" if reason.won else "-"
    key = f"{reason.key}: " if reason.key else ""
    note = f" ({reason.note})" if reason.note else ""
    return f"{mark} {reason.subject} = {reason.value}  [{reason.origin.layer}] {key}{reason.origin.where}{note}"


def _diff(first: RunSpec, second: RunSpec, flags: Flags) -> str:
    changes = list(_config_changes(first.config, second.config)) + list(_placement_changes(first, second))
    if flags.json:
        names = ("key", "first", "second")
        return json.dumps([dict(zip(names, change, strict=True)) for change in changes], indent=2, ensure_ascii=False)
    if not changes:
        return "no difference"
    return format_table(("key", *flags.diff), [tuple(_text(part) for part in change) for change in changes])


def _config_changes(first: Any, second: Any, key: str = "") -> Iterable[tuple[str, Any, Any]]:
    if isinstance(first, Mapping) and isinstance(second, Mapping):
        for name in dict.fromkeys((*first, *second)):
            yield from _config_changes(first.get(name), second.get(name), f"{key}.{name}" if key else name)
    elif first != second and not key.startswith(PROMISES):
        yield key, first, second


def _placement_changes(first: RunSpec, second: RunSpec) -> Iterable[tuple[str, str, str]]:
    for name in dict.fromkeys((*first.placements, *second.placements)):
        rows = [_row(spec.placements[name])[2:] if name in spec.placements else None for spec in (first, second)]
        if rows[0] != rows[1]:
            before, after = (" ".join(row) if row else "absent" for row in rows)
            yield f"placement of {name}", before, after


def _text(value: Any) -> str:
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return text if len(text) <= 60 else f"{text[:57]}..."
