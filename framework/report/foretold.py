"""What a stored plan predicts, read with care: records come from several versions, and many have no plan. No torch."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class ForetoldStage:
    """One stage of one request as the plan saw it; None for what it does not say. Seconds and bytes."""

    name: str
    seconds: float | None = None
    peak_bytes: int | None = None
    bound_by: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Foretold:
    """`stages` by name; peaks are of the device and of the host's memory for weights; `alternatives` are lines."""

    stages: Mapping[str, ForetoldStage]
    load_s: float | None = None
    seconds: float | None = None
    peak_bytes: int | None = None
    host_bytes: int | None = None
    reasons: tuple[str, ...] = ()
    alternatives: tuple[str, ...] = ()


def read_foretold(plan: Mapping[str, Any]) -> Foretold | None:
    """Return the prediction in a record's `plan`, None where it has none."""
    found = next((part for part in _mappings(plan) if isinstance(part.get("stages"), list | Mapping)), None)
    if found is None:
        return None
    stages = {stage.name: stage for stage in _stages(found["stages"])}
    return Foretold(
        stages=stages,
        load_s=_number(found.get("load_s")),
        seconds=_number(found.get("seconds")),
        peak_bytes=_whole(found.get("peak_bytes")) or max((s.peak_bytes or 0 for s in stages.values()), default=None),
        host_bytes=_whole(found.get("host_bytes")),
        reasons=_reasons(found.get("components")) or _lines(plan, "reasons"),
        alternatives=_lines(plan, "alternatives"),
    )


def _mappings(plan: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    """The places where a forecast may stand: in the plan itself or one level below."""
    yield plan
    yield from (value for value in plan.values() if isinstance(value, Mapping))
    for value in plan.values():
        if isinstance(value, Mapping):
            yield from (inner for inner in value.values() if isinstance(inner, Mapping))


def _stages(found: Any) -> Iterator[ForetoldStage]:
    entries = found.items() if isinstance(found, Mapping) else ((None, entry) for entry in found)
    for name, entry in entries:
        if isinstance(entry, Mapping) and (name or entry.get("stage") or entry.get("name")):
            bound = entry.get("bound_by")
            yield ForetoldStage(
                name=str(name or entry.get("stage") or entry.get("name")),
                seconds=_number(entry.get("seconds")),
                peak_bytes=_whole(entry.get("device_peak_bytes", entry.get("peak_bytes"))),
                bound_by=None if bound is None else str(bound),
            )


def _reasons(components: Any) -> tuple[str, ...]:
    """The planner's own sentence for each component."""
    entries = components.values() if isinstance(components, Mapping) else ()
    return tuple(str(entry["reason"]) for entry in entries if isinstance(entry, Mapping) and entry.get("reason"))


def _lines(plan: Mapping[str, Any], key: str) -> tuple[str, ...]:
    for part in _mappings(plan):
        found = part.get(key)
        if isinstance(found, list | tuple):
            return tuple(str(line) for line in found if isinstance(line, str))
        if isinstance(found, Mapping):
            return tuple(str(line) for line in found.values() if isinstance(line, str))
    return ()


def _number(value: Any) -> float | None:
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else None


def _whole(value: Any) -> int | None:
    number = _number(value)
    return None if number is None else int(number)
