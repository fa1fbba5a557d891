"""Profiles on disk: one JSON file for each request's work, found again by all it depends on. No torch.

A file that is broken, of another version or of other circumstances is as good as none.
"""

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from framework.outputs.atomic import atomic_path
from framework.paths import cache_root
from framework.planning.facts import CallCount, CallWork, Kernel, RunWork, StageWork, Work

SCHEMA = 2
FOLDER = "profiles"


def read_profile(key: str) -> RunWork | None:
    """Return the work that is stored under `key`, None where there is none or its file is broken."""
    try:
        content = json.loads(_path(key).read_text(encoding="utf-8"))
        if content["schema"] != SCHEMA or content["key"] != key or content["sum"] != _sum(content["work"]):
            return None
        return from_plain(content["work"])
    except (OSError, ValueError, KeyError, TypeError, IndexError):
        return None


def write_profile(key: str, work: RunWork) -> None:
    """Store `work` under `key`. A disk that is full or not ours costs the next plan its time, and no more."""
    path, plain = _path(key), to_plain(work)
    content = {"schema": SCHEMA, "key": key, "sum": _sum(plain), "work": plain}
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with atomic_path(path) as partial:
            partial.write_text(json.dumps(content, separators=(",", ":")), encoding="utf-8")
    except OSError:
        return


def _path(key: str) -> Path:
    return cache_root() / FOLDER / f"{key}.json"


def _sum(plain: Any) -> str:
    return hashlib.sha256(json.dumps(plain, sort_keys=True).encode()).hexdigest()


# --- to plain data: stretches of work are written once, for most are alike


def to_plain(work: RunWork) -> dict[str, Any]:
    table: dict[Work, int] = {}
    calls: dict[CallWork, int] = {}
    stages = [_stage_plain(stage, table, calls) for stage in work.stages]
    return {
        "exact": work.exact,
        "notes": list(work.notes),
        "stages": stages,
        "calls": [_call_plain(call, table) for call in calls],
        "works": [_work_plain(one) for one in table],
    }


def _stage_plain(stage: StageWork, table: dict[Work, int], calls: dict[CallWork, int]) -> dict[str, Any]:
    return {
        "stage": stage.stage,
        "extra": [stage.extra_bytes, stage.entry_bytes, stage.later_bytes, stage.end_bytes],
        "outside": table.setdefault(stage.outside, len(table)),
        "calls": [[calls.setdefault(one.call, len(calls)), one.count, one.steps] for one in stage.calls],
    }


def _call_plain(call: CallWork, table: dict[Work, int]) -> dict[str, Any]:
    return {
        "component": call.component,
        "entry": call.entry_point,
        "layers": list(call.layers),
        "works": [table.setdefault(one, len(table)) for one in (call.before, *call.layer_work, call.after)],
        "activation": call.activation_bytes,
        "live": call.live_bytes,
        "reads": list(call.reads_outside),
    }


def _work_plain(work: Work) -> dict[str, Any]:
    plain = {name: getattr(work, name) for name in Work.__slots__ if name != "kernels"}
    return {**plain, "kernels": [[one.kind, one.flops, one.size_bytes, one.count] for one in work.kernels]}


# --- and back


def from_plain(plain: Mapping[str, Any]) -> RunWork:
    works = [_work(one) for one in plain["works"]]
    calls = [_call(one, works) for one in plain["calls"]]
    stages = tuple(_stage(one, works, calls) for one in plain["stages"])
    return RunWork(stages=stages, exact=plain["exact"], notes=tuple(plain["notes"]))


def _stage(plain: Mapping[str, Any], works: list[Work], calls: list[CallWork]) -> StageWork:
    extra, entry, later, end = plain["extra"]
    return StageWork(
        stage=plain["stage"],
        calls=tuple(CallCount(call=calls[n], count=count, steps=_steps(steps)) for n, count, steps in plain["calls"]),
        extra_bytes=extra,
        entry_bytes=entry,
        later_bytes=later,
        end_bytes=end,
        outside=works[plain["outside"]],
    )


def _steps(plain: list[int] | None) -> tuple[int, int] | None:
    return None if plain is None else (plain[0], plain[1])


def _call(plain: Mapping[str, Any], works: list[Work]) -> CallWork:
    before, *layers, after = (works[number] for number in plain["works"])
    return CallWork(
        component=plain["component"],
        entry_point=plain["entry"],
        layers=tuple((path, index) for path, index in plain["layers"]),
        layer_work=tuple(layers),
        before=before,
        after=after,
        activation_bytes=plain["activation"],
        live_bytes=plain["live"],
        reads_outside=tuple(plain["reads"]),
    )


def _work(plain: Mapping[str, Any]) -> Work:
    kernels = tuple(Kernel(kind, flops, size, count) for kind, flops, size, count in plain["kernels"])
    return Work(**{**plain, "kernels": kernels})
