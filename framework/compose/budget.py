"""Upper bounds of memory and disk: their spellings, and the devices where one means nothing. No torch."""

import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from framework.compose.knobs import UNITS
from framework.compose.sources import Entry
from framework.compose.spellings import quoted
from framework.errors import Origin, Problem
from framework.spec import Bound, BudgetSpec, ReserveSpec

KINDS = ("device", "pinned", "host", "disk")
FORMS = "bytes such as 8GiB, a share of the whole such as 80%, or what is free less some, such as free-2GiB"
RESERVE_FORMS = "bytes such as 512MiB, or a share of the device's memory such as 5%"
_NUMBER = r"[0-9]+(?:\.[0-9]*)?|\.[0-9]+"
_SIZE = re.compile(rf"({_NUMBER})\s*([kmgt]i?b|b)?", re.IGNORECASE)
_SHARE = re.compile(rf"({_NUMBER})\s*%")
_FREE = re.compile(r"free(?:\s*-\s*(.+))?", re.IGNORECASE)


def read_bound(value: Any) -> Bound:
    """Return the bound that `value` means; raises `ValueError` with a reason that states the forms."""
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        raise ValueError(f"{quoted(value)} is not an amount of memory: {FORMS}")
    if isinstance(value, float) and value.is_integer():
        value = int(value)  # YAML reads 8e9 so
    text = str(value).strip()
    if (share := _SHARE.fullmatch(text)) is not None:
        if float(share[1]) > 100:
            raise ValueError(f"{text} is more than the whole: {FORMS}")
        return Bound(text, share=float(share[1]) / 100)
    if (free := _FREE.fullmatch(text)) is not None:
        return Bound(text, below_free_bytes=_size(free[1], value) if free[1] else 0)
    return Bound(text, size_bytes=_size(text, value))


def build_budget(data: Mapping[str, Any]) -> BudgetSpec:
    """Build the budget from a mapping that `budget_problems` has found right."""
    return BudgetSpec(**{kind: read_bound(value) for kind, value in data.items() if value is not None})


def build_reserve(data: Mapping[str, Any]) -> ReserveSpec:
    """Build the reserve from a mapping that `budget_problems` has found right."""
    return ReserveSpec(**{kind: read_bound(value) for kind, value in data.items() if value is not None})


def with_folded(
    data: Mapping[str, Any], folded: Iterable[Entry], origin: Callable[[str], Origin | None]
) -> tuple[dict[str, Any], list[str]]:
    """Return `budget` and `warmup` with what older keys became, and a line for each that the user's own key beats.

    `origin` gives the place where a key was set.
    """
    budget = {kind: value for kind, value in (data.get("budget") or {}).items() if value is not None}
    said = {"budget": budget, "warmup": data.get("warmup")}
    notes = []
    for entry in folded:
        own = origin(entry.key)
        if own is not None and own.layer == "user":
            kept = budget.get(entry.key.partition(".")[2], said["warmup"])
            if kept != entry.value:
                text = f"no effect: beaten by {entry.key}={kept} ({own.where})"
                notes.append(str(Problem(f"{entry.key}={entry.value}", text, entry.origin.where)))
        elif entry.key == "warmup":
            said["warmup"] = entry.value
        else:
            budget[entry.key.partition(".")[2]] = entry.value
    return said, notes


def budget_problems(data: Mapping[str, Any], locate: Callable[[str], str]) -> Iterator[Problem]:
    """Yield what is wrong with the bounds and the reserves of the composed `data`."""
    for kind, value in (data.get("budget") or {}).items():
        key = f"budget.{kind}"
        try:
            if value is not None:
                read_bound(value)
        except ValueError as error:
            yield Problem(key, str(error), locate(key))
    for kind, value in (data.get("reserve") or {}).items():
        key = f"reserve.{kind}"
        if value is not None and not _is_reserve(value):
            yield Problem(key, f"{quoted(value)} is not an amount to keep free", locate(key), RESERVE_FORMS)
    if data.get("device") == "cpu" and (data.get("budget") or {}).get("device") is not None:
        reason = "on the cpu the device's memory is the host's"
        yield Problem("budget.device", reason, locate("budget.device"), "use budget.host")


def _is_reserve(value: Any) -> bool:
    try:
        bound = read_bound(value)
    except ValueError:
        return False
    return bound.size_bytes is not None or bound.share is not None


def _size(text: str, value: Any) -> int:
    match = _SIZE.fullmatch(text.strip())
    if match is None:
        raise ValueError(f"{quoted(value)} is not an amount of memory: {FORMS}")
    size = float(match[1]) * UNITS[(match[2] or "b").lower()]
    if match[2] is None:
        if not match[1].isdecimal():
            raise ValueError(f"{quoted(value)} has no unit and is no whole number of bytes: {FORMS}")
        return int(match[1])
    if not math.isfinite(size):
        raise ValueError(f"{quoted(value)} is out of range: {FORMS}")
    return int(size)
