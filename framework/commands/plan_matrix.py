"""`plan` over several machines and values: a row for each combination, as table, CSV or JSON. No torch at import.

Files are composed once for each combination of groups, sizes and work are found once for all rows that share them.
"""

import csv
import io
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from framework.commands.plan_spec import finished, write
from framework.commands.table import format_table
from framework.compose.arguments import Flags
from framework.compose.groups import config_folders
from framework.compose.overrides import read_overrides
from framework.errors import ConfigError, FrameworkError, PlanError
from framework.graph import build_graph
from framework.planning.machine import resolve_hardware
from framework.planning.plan import Planner
from framework.planning.plan_data import gigabytes
from framework.report.phrases import format_seconds
from framework.sweep.axes import Axis, split_words
from framework.sweep.compose_jobs import Composer
from framework.sweep.grid import Assignment, Grid

FIGURES = ("fits", "peak_bytes", "host_bytes", "seconds", "bound_by", "refused")
TABLE = ".csv"


def axes_of(overrides: Sequence[str], flags: Flags) -> tuple[list[str], list[Axis]]:
    """Return the words that all rows share, and those with several values."""
    fixed, _ = split_words(overrides)
    folders = config_folders(flags, [word for word in read_overrides(fixed) if word.kind == "searchpath"])
    return split_words(overrides, folders)


def plan_matrix(fixed: Sequence[str], axes: Sequence[Axis], flags: Flags) -> int:
    """Print a row for each combination; 0 where any fits, else 3."""
    composer, planner = Composer(flags), Planner()
    keys = [axis.key for axis in axes]
    rows = [matrix_row(fixed, job, composer, planner) for job in Grid(axes=tuple(axes)).jobs()]
    if flags.chart:
        write(Path(flags.chart), as_csv(keys, rows))
    if flags.json:
        print(json.dumps(rows, indent=2))
    else:
        print(format_table((*keys, "peak", "host", "time", "bound by"), [_cells(keys, row) for row in rows]))
    return 0 if any(row["fits"] for row in rows) else PlanError.exit_code


def matrix_row(fixed: Sequence[str], job: Sequence[Assignment], composer: Composer, planner: Planner) -> dict[str, Any]:
    """Return the values of one combination and what its plan comes to, or why it is refused."""
    row: dict[str, Any] = {own.key: own.value for own in job} | dict.fromkeys(FIGURES)
    try:
        spec = finished(composer.job([*fixed, *(own.word for own in job)]))
        machine = resolve_hardware(spec.config.get("hardware"), spec.device)
        foretold = planner.plan(spec, build_graph(spec.pipeline), machine).forecast
    except ConfigError:
        raise
    except FrameworkError as error:
        return row | {"fits": False, "refused": str(error)}
    slowest = max(foretold.stages, key=lambda stage: stage.seconds)
    return row | {
        "fits": True,
        "peak_bytes": foretold.peak_bytes,
        "host_bytes": foretold.host_bytes,
        "seconds": foretold.seconds,
        "bound_by": slowest.bound_by,
    }


def as_csv(keys: Sequence[str], rows: Sequence[dict[str, Any]]) -> str:
    """Return the rows as CSV with a header; sizes are bytes, times seconds."""
    out = io.StringIO()
    writer = csv.DictWriter(out, [*keys, *FIGURES], lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return out.getvalue()


def _cells(keys: Sequence[str], row: dict[str, Any]) -> tuple[str, ...]:
    values = tuple(str(row[key]) for key in keys)
    if not row["fits"]:
        return (*values, f"does not fit: {row['refused']}", "", "", "")
    figures = (gigabytes(row["peak_bytes"]), gigabytes(row["host_bytes"]), format_seconds(row["seconds"]))
    return (*values, *figures, row["bound_by"])
