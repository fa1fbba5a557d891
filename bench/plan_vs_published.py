"""How far forecasts are from what others have published, for a fixed table of rows. Imports torch for new work only.

    python -m bench.plan_vs_published [--quick] [--json]

`bench/published.yaml` has the rows, every second one held out; constants come from hardware files alone. Times are of
stages without loading, memory is what tensors hold. Reported, not gated: rows that are far off say what was left out.
The work of each request is found by one pass over shapes and kept, so the first run takes minutes.
"""

import argparse
import json
import statistics
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from framework.compose import compose
from framework.compose.arguments import Flags
from framework.graph import build_graph
from framework.planning.facts import Forecast
from framework.planning.forecast import forecast
from framework.planning.machine import resolve_hardware
from framework.planning.plan import Planner, choices_of

ROWS = Path(__file__).with_name("published.yaml")
CONFIGS = Path(__file__).with_name("conf")
QUICK = ("sd15",)
OUTLIER = 1.3
"""Beyond this factor, or its inverse, a row has to say why."""
HOST_GIB = 1024  # nobody says what the host had


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One published figure. `seconds` of `scope`: run, step or a stage; `gb`: peak of the device in 10^9 bytes."""

    name: str
    hold_out: bool
    source: str
    pipeline: str
    hardware: str
    scope: str
    residency: Mapping[str, str]
    seconds: float | None = None
    gb: float | None = None
    request: Mapping[str, Any] | None = None
    layerwise: Mapping[str, Mapping[str, Any]] | None = None
    about: str = ""
    why: str = ""

    def words(self) -> list[str]:
        """Return the command line of its plan."""
        words = [f"pipeline={self.pipeline}", f"hardware={self.hardware}", "device=cuda", "prompt=any"]
        words += [f"hardware.host_ram_gib={HOST_GIB}"]
        words += [f"request.{key}={value}" for key, value in (self.request or {}).items()]
        words += [f"component_residency.{name}={mode}" for name, mode in self.residency.items()]
        knobs = [(name, *one) for name, own in (self.layerwise or {}).items() for one in own.items()]
        return words + [f"layerwise.{name}.{key}={json.dumps(value)}" for name, key, value in knobs]


def read_rows(path: Path = ROWS) -> list[Row]:
    """Return the table in its order."""
    return [Row(**entry) for entry in yaml.safe_load(path.read_text(encoding="utf-8"))["rows"]]


def foretell(row: Row, planner: Planner) -> tuple[Forecast, int]:
    """Return the forecast of a row, whether it fits or not, and the device bytes that it may take."""
    spec = compose(row.words(), Flags(config_dir=(str(CONFIGS),)))
    machine = resolve_hardware(spec.config.get("hardware"), spec.device)
    problem = planner.problem(spec, build_graph(spec.pipeline), machine, spec.numerics)
    return forecast(problem, choices_of(spec.placements, problem)), problem.device_bytes


def seconds_of(row: Row, foretold: Forecast) -> float:
    """Return the foretold seconds of the row's scope."""
    stages = {stage.stage: stage.seconds for stage in foretold.stages}
    if row.scope == "run":
        return sum(stages.values())
    return stages["denoise"] / (row.request or {})["num_inference_steps"] if row.scope == "step" else stages[row.scope]


def compare(row: Row, planner: Planner) -> dict[str, Any]:
    """Return a row beside its forecast; ratios are foretold / published."""
    foretold, device_bytes = foretell(row, planner)
    found: dict[str, Any] = {"name": row.name, "hold_out": row.hold_out, "source": row.source, "scope": row.scope}
    if row.seconds is not None:
        seconds = seconds_of(row, foretold)
        found |= {"published_s": row.seconds, "foretold_s": seconds, "time_ratio": seconds / row.seconds}
    if row.gb is not None:
        gb = foretold.peak_bytes / 1e9
        found |= {"published_gb": row.gb, "foretold_gb": gb, "memory_ratio": gb / row.gb}
    bound = max(foretold.stages, key=lambda stage: stage.seconds).bound_by
    return found | {"bound_by": bound, "fits": foretold.peak_bytes <= device_bytes, "about": row.about, "why": row.why}


def summary(rows: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return the errors of times and of memory apart, of rows that were held out and of the others."""
    return {
        f"{kind}, {'held out' if held else 'others'}": _errors(
            [row[f"{kind}_ratio"] for row in rows if row["hold_out"] is held and f"{kind}_ratio" in row]
        )
        for kind in ("time", "memory")
        for held in (True, False)
    }


def _errors(ratios: Sequence[float]) -> dict[str, Any]:
    """The factor by which a row is off, whichever way: the middle one, the largest, and how many are near."""
    factors = [max(ratio, 1 / ratio) for ratio in ratios]
    return {
        "rows": len(factors),
        "median_factor": statistics.median(factors) if factors else None,
        "largest_factor": max(factors, default=None),
        f"within_{OUTLIER}": sum(factor <= OUTLIER for factor in factors),
    }


def outliers(rows: Sequence[Mapping[str, Any]]) -> Iterator[Mapping[str, Any]]:
    """Yield the rows whose time or memory is off by more than the factor that has to be explained."""
    for row in rows:
        ratios = [row[key] for key in ("time_ratio", "memory_ratio") if key in row]
        if any(not 1 / OUTLIER <= ratio <= OUTLIER for ratio in ratios):
            yield row


def run(quick: bool = False) -> dict[str, Any]:
    planner = Planner(connect=False)
    rows = [compare(row, planner) for row in read_rows() if not quick or row.pipeline in QUICK]
    return {"rows": rows, "summary": summary(rows), "unexplained": [r["name"] for r in outliers(rows) if not r["why"]]}


def main() -> None:
    from bench.tables import plan_vs_published

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="one small model only")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    found = run(options.quick)
    print(json.dumps(found) if options.json else "\n".join(plan_vs_published(found)))


if __name__ == "__main__":
    main()
