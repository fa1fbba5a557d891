"""The knobs of a layerwise component: their spellings, units and whole numbers of layers. No torch.

Below 1 an amount is a fraction of the layers, from 1 it is a count; `N%` and `all` are text;
`resident` also takes bytes.
"""

import math
import re
from dataclasses import dataclass, field
from typing import Any

from framework.compose.spellings import quoted, shown
from framework.errors import did_you_mean
from framework.registry import fold_name
from framework.spec import Knob

AMOUNTS = ("prefetch", "resident")
WORDS = {"policy": ("leading", "strided"), "lifetime": ("use", "retained", "permanent")}
KNOBS = (*AMOUNTS, *WORDS)

COUNT, SHARE, BYTES = "count", "share", "bytes"
_NUMBER = r"[+-]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]+)?"
_WRITTEN = re.compile(rf"({_NUMBER})\s*(%|[kmgt]i?b|b)?", re.IGNORECASE)
UNITS = {
    "b": 1,
    **{f"{letter}b": 1000**power for power, letter in enumerate("kmgt", start=1)},
    **{f"{letter}ib": 1024**power for power, letter in enumerate("kmgt", start=1)},
}


@dataclass(frozen=True, slots=True)
class Amount:
    """An amount as written and what it means: a count of layers, a share of them (0 to 1), or bytes."""

    kind: str
    number: float
    written: str = field(compare=False)


DEFAULTS: dict[str, Amount | str] = {
    "prefetch": Amount(COUNT, 1, "1"),
    "resident": Amount(COUNT, 0, "0"),
    "policy": "strided",
    "lifetime": "use",
}


def read_knob(knob: str, value: Any) -> Amount | str:
    """Return the checked value of one of `KNOBS`; raises `ValueError` with a reason that states the units."""
    return read_amount(knob, value) if knob in AMOUNTS else read_word(knob, value)


def read_word(knob: str, value: Any) -> str:
    """A policy or lifetime, with case folded."""
    choices = WORDS[knob]
    if isinstance(value, str) and fold_name(value) in choices:
        return fold_name(value)
    hint = did_you_mean(value, choices) if isinstance(value, str) else f"choose from {', '.join(choices)}"
    raise ValueError(f"{quoted(value)} is not a {knob}; {hint}")


def read_amount(knob: str, value: Any) -> Amount:
    """A count, fraction, percentage, `all`, or (for `resident`) a size in bytes."""
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        raise ValueError(f"{quoted(value)} is not an amount: {units(knob)}")
    if not isinstance(value, str):
        return _number(knob, value, shown(value))
    text = value.strip()
    if text.lower() == "all":
        return Amount(SHARE, 1.0, "all")
    match = _WRITTEN.fullmatch(text)
    if match is None:
        raise ValueError(f"{quoted(value)} is not an amount: {units(knob)}")
    number = float(match[1])
    unit = (match[2] or "").lower()
    if unit == "%":
        return _percent(knob, number, text)
    return _bytes(knob, number, unit, text) if unit else _number(knob, number, text)


def units(knob: str) -> str:
    """The units of a knob in words, for messages."""
    words = "0 or more; below 1 a fraction of the layers, from 1 a count of layers, or 'N%' up to 100%, or 'all'"
    return words + (", or bytes such as '6GiB'" if knob == "resident" else "")


def to_knob(knob: str, amount: Amount, stack_lengths: tuple[int, ...] | None) -> Knob:
    """The amount in whole layers of each stack where the lengths are known."""
    if amount.kind == BYTES:
        return Knob(amount.written, size_bytes=int(amount.number))
    if stack_lengths is None:
        return Knob(amount.written)
    return Knob(amount.written, layers=tuple(to_layers(knob, amount, length) for length in stack_lengths))


def to_layers(knob: str, amount: Amount, num_layers: int) -> int:
    """Whole layers of one stack; halves round to even, as Python does. An amount in bytes has no count."""
    if amount.number <= 0:
        return 0
    if amount.kind == COUNT:
        return min(num_layers, int(amount.number))
    if knob == "prefetch":
        return min(num_layers, 1 + round(amount.number * (num_layers - 1)))
    return min(num_layers, max(1, round(amount.number * num_layers)))


def remark(amount: Amount, stack_lengths: tuple[int, ...] | None) -> str:
    """What a reader should know of an amount that is not taken to the letter; else nothing."""
    if amount.kind == COUNT and stack_lengths and amount.number > max(stack_lengths):
        return f"{amount.written} is more than there are layers; taken as all {max(stack_lengths)}"
    if amount.kind == COUNT and amount.number != int(amount.number):
        return f"{amount.written} is a count of layers; taken as {int(amount.number)}"
    return ""


def _number(knob: str, number: float, written: str) -> Amount:
    # A Python int may be too large for a float, and is finite anyway.
    if number < 0 or not (isinstance(number, int) or math.isfinite(number)):
        raise ValueError(f"{written} is out of range: {units(knob)}")
    return Amount(SHARE if 0 < number < 1 else COUNT, number, written)


def _percent(knob: str, number: float, written: str) -> Amount:
    if not 0 <= number <= 100:
        raise ValueError(f"{written} is out of range: {units(knob)}")
    return Amount(SHARE, number / 100, written)


def _bytes(knob: str, number: float, unit: str, written: str) -> Amount:
    if knob != "resident":
        raise ValueError(f"{written} is an amount of bytes, which only 'resident' takes: {units(knob)}")
    size = number * UNITS[unit]
    if not math.isfinite(size) or size < 0:
        raise ValueError(f"{written} is out of range: {units(knob)}")
    return Amount(BYTES, int(size), written)
