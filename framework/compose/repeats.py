"""One key of residency given twice on one command line with two values: refused, never the last one. No torch."""

from collections.abc import Iterator, Sequence
from typing import Any

from framework.compose.legacy import legacy_name
from framework.compose.overrides import Override
from framework.compose.spellings import shown
from framework.errors import ConfigError, Problem

HEADS = ("component_residency", "layerwise", "performance_mode")
LIFTED = ("residency.", "pipeline.defaults.residency.", "pipeline.defaults.layerwise.")


def refuse_repeats(words: Sequence[Override]) -> None:
    """Raise `ConfigError` for each contradiction; null takes a value back and contradicts nothing."""
    problems = list(_contradictions(words))
    if problems:
        raise ConfigError(problems)


def _contradictions(words: Sequence[Override]) -> Iterator[Problem]:
    said: dict[str, tuple[Any, Override]] = {}
    for word in words:
        if word.kind != "value" or not _is_residency(word.key):
            continue
        for key, value in word.leaves():
            before, other = said.get(key, (value, word))
            if before != value and None not in (before, value):
                reason = f"'{shown(value)}' contradicts {key}={shown(before)} ({other.where})"
                yield Problem(key, reason, word.where, "keep one of them")
            said[key] = value, word


def _is_residency(key: str) -> bool:
    head = key.partition(".")[0]
    return head in HEADS or key.startswith(LIFTED) or legacy_name(head) is not None
