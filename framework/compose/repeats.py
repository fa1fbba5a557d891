"""What one command line says twice with two values: refused, never the last one silently. No torch."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from framework.compose.legacy import legacy_name
from framework.compose.overrides import Override
from framework.compose.spellings import shown
from framework.compose.yaml_file import parse_document
from framework.errors import ConfigError, Problem

DUPLICATE = "duplicate key"
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
        _, _, text = word.line.partition("=")
        if word.kind == "value" and isinstance(word.value, dict) and text.startswith("{"):
            refuse_repeats_in_map(word.key, text, word.where)
        if word.kind != "value" or not _is_residency(word.key):
            continue
        for key, value in word.leaves():
            before, other = said.get(key, (value, word))
            if shown(before) != shown(value) and before != value and None not in (before, value):
                reason = f"'{shown(value)}' contradicts {key}={shown(before)} ({other.where})"
                yield Problem(key, reason, word.where, "keep one of them")
            said[key] = value, word


def _is_residency(key: str) -> bool:
    head = key.partition(".")[0]
    return head in HEADS or key.startswith(LIFTED) or legacy_name(head) is not None


def refuse_repeats_in_map(key: str, text: str, where: str) -> None:
    """Raise `ConfigError` for a key that a map of the command line holds twice; Hydra's grammar keeps the last.

    Read as YAML, which asks for a space behind the colon where Hydra does not; what YAML cannot read is let through.
    """
    try:
        parse_document(text.replace(":", ": "), Path(), "")
    except ConfigError as error:
        for problem in error.problems:
            if problem.reason.startswith(DUPLICATE):
                raise ConfigError.of(f"{key}.{problem.key}", DUPLICATE, where) from None
