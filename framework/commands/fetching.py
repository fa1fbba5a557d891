"""Gets a missing checkpoint before a run, and says so: names, sizes, free disk, progress. No torch."""

import sys
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from framework.compose.arguments import Flags
from framework.compose.budget import build_budget
from framework.compose.composer import check, compose_data
from framework.errors import ConfigError, LoadError
from framework.loading.hub import amount
from framework.spec import Bound, LoraSpec, ModelSpec, PipelineSpec, RunSpec

Say = Callable[[str], None]
WHOLE = "diffusers_pipeline"
SECONDS_BETWEEN = 2.0  # between two lines of progress; a terminal gets ten times as many, on one line


def compose_fetched(overrides: Sequence[str], flags: Flags, say: Say, *, needs_prompt: bool = True) -> RunSpec:
    """Compose a run; a pipeline that is called as a whole is fetched first, because its index lists its components.

    Raises `ConfigError` and `LoadError`.
    """
    composed = compose_data(overrides, flags)
    if not needs_prompt and composed.data.get("prompt") is None and not composed.data.get("requests"):
        composed.data["prompt"] = "none"  # nothing is made of it
    pipeline = _listed_elsewhere(composed.data)
    if pipeline is not None:
        fetch_missing(pipeline, frozenset(), (), say, bound=_disk_bound(composed.data))
    return check(composed)


def fetch_missing(
    pipeline: PipelineSpec,
    used: frozenset[str],
    loras: Sequence[LoraSpec],
    say: Say,
    *,
    progress: bool = True,
    bound: Bound | None = None,
) -> int:
    """Fetch what the run needs and this machine lacks; return the bytes fetched. Nothing missing: no connection.

    Raises `LoadError` before anything is fetched when something is not there, gated, or does not fit on the disk or
    in `bound`, the run's `budget.disk`.
    """
    from framework.loading.needs import needs_of

    needs = needs_of(pipeline, used, loras)
    if not needs:
        return 0
    from framework.loading.hub import check_space, fetch_files, plan_fetch

    try:
        fetches = [fetch for need in needs if (fetch := plan_fetch(need)) is not None]
    except LoadError as error:
        size = pipeline.hints.get("download_gib")
        if size is None:
            raise
        raise LoadError(f"{error} (the whole download is about {size} GiB)") from error
    if not fetches:
        return 0
    free = check_space(fetches, bound)
    for fetch in fetches:
        wanted = sum(file.size_bytes for file in fetch.files)
        here = wanted - fetch.missing_bytes
        already = f", of which {amount(here)} are here" if here else ""
        at = f"@{fetch.revision}" if fetch.revision else ""
        say(f"fetching {fetch.repo}{at}: {len(fetch.files)} files, {amount(wanted)}{already}; {amount(free)} free")
        meter = Meter(fetch.repo) if progress else None
        fetch_files(fetch, meter.show if meter else _silent)
        if meter:
            meter.close()
    return sum(fetch.missing_bytes for fetch in fetches)


def _disk_bound(data: Mapping[str, Any]) -> Bound | None:
    """The run's `budget.disk`; one that cannot be read is told by the check that follows."""
    try:
        return build_budget(data.get("budget") or {}).disk
    except (ConfigError, TypeError, ValueError):
        return None


class Meter:
    """Shows how far a download is on stderr: one line that is written over on a terminal, else a line now and then."""

    def __init__(self, name: str) -> None:
        self._name, self._is_terminal = name, sys.stderr.isatty()
        self._started = self._shown = time.monotonic()
        self._first: int | None = None
        self._wrote = False

    def show(self, here: int, total: int) -> None:
        now = time.monotonic()
        if self._first is None:
            self._first = here
        pause = SECONDS_BETWEEN / 10 if self._is_terminal else SECONDS_BETWEEN
        if now - self._shown < pause:
            return
        self._shown = now
        speed = (here - self._first) / max(now - self._started, 0.001)
        left = f", {(total - here) / speed:.0f} s left" if speed > 0 else ""
        share = 100 * here // total if total else 100
        line = f"{self._name}: {share} %, {amount(here)} of {amount(total)}, {amount(speed)}/s{left}"
        sys.stderr.write(f"\r\x1b[K{line}" if self._is_terminal else f"{line}\n")
        sys.stderr.flush()
        self._wrote = True

    def close(self) -> None:
        if self._wrote and self._is_terminal:
            sys.stderr.write("\r\x1b[K")
            sys.stderr.flush()


def _silent(here: int, total: int) -> None:
    """Shows nothing."""


def _listed_elsewhere(data: Mapping[str, Any]) -> PipelineSpec | None:
    """The pipeline as far as its raw data tells, where only the model's index can say what its components are."""
    pipeline = data.get("pipeline")
    if not isinstance(pipeline, Mapping) or pipeline.get("backend") != WHOLE or pipeline.get("components"):
        return None
    model = pipeline.get("model")
    if not isinstance(model, Mapping) or not isinstance(model.get("source"), str) or not model["source"]:
        return None
    known = {key: model[key] for key in ("source", "revision", "variant", "allow_pickle") if model.get(key) is not None}
    return PipelineSpec(name="listed", family=None, backend=WHOLE, model=ModelSpec(**known), components={}, stages={})
