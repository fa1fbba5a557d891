"""`validate`: check a config and everything it names. No torch."""

import json

from framework.compose.arguments import COMPOSING, Flags
from framework.errors import ConfigError, Problem
from framework.loading.places import missing_places
from framework.outputs.folder import check_name
from framework.spec import RunSpec

SUMMARY = "Check a config: every key, the stage graph, the placement; nothing is loaded."
EXAMPLES = (
    "framework validate",
    "framework validate pipeline=wan2 residency=low_vram",
    "framework validate experiment=digits_grid --json",
)
ACCEPTED = COMPOSING | {"json"}


def main(overrides: list[str], flags: Flags) -> int:
    """Print one line (and the notes) when all is right; raise `ConfigError` otherwise."""
    from framework.compose.composer import compose

    try:
        spec = compose(overrides, flags)
        _check_outside(spec)
    except ConfigError as error:
        if not flags.json:
            raise
        problems = [{"key": p.key, "where": p.where, "reason": p.reason, "hint": p.hint} for p in error.problems]
        print(json.dumps({"ok": False, "problems": problems}, indent=2, ensure_ascii=False))
        return error.exit_code
    if flags.json:
        print(json.dumps({"ok": True, "pipeline": spec.pipeline.name, "notes": spec.notes}, indent=2))
        return 0
    for note in () if flags.quiet else spec.notes:
        print(f"note: {note}")
    parts = (
        _count(len(spec.pipeline.stages), "stage"),
        _count(len(spec.pipeline.components), "component"),
        _count(len(spec.requests), "request"),
    )
    print(f"ok: pipeline {spec.pipeline.name}, {', '.join(parts)}")
    return 0


def _check_outside(spec: RunSpec) -> None:
    """Refuse a folder that cannot be, and local places that are not here; the hub's are fetched when needed."""
    try:
        check_name(spec.output)
        problems = [Problem(key, reason) for key, reason in missing_places(spec.pipeline)]
        if problems:
            raise ConfigError(problems)
    except ConfigError as error:
        error.locate(spec.provenance)
        raise


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"
