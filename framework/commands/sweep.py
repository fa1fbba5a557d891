"""`sweep` and `run -m`: many runs from one command, on all devices of a machine or a cluster. No torch."""

import sys
from collections.abc import Callable
from pathlib import Path

from framework.commands.fetching import fetch_missing
from framework.commands.table import format_table
from framework.compose.arguments import COMPOSING, Flags
from framework.errors import ConfigError, Interrupted
from framework.graph import build_graph
from framework.paths import expand
from framework.spec import RunSpec
from framework.sweep.compose_jobs import report, values_shown
from framework.sweep.conduct import Outcome, conduct, find_folder, look_at_folder
from framework.sweep.manifest import KEY, Manifest, is_running, read_manifest
from framework.sweep.plan import SweepPlan, plan_resume, plan_sweep
from framework.sweep.ray_cluster import disconnect, is_connected
from framework.sweep.results import REFUSED_CODE, counts, exit_code
from framework.sweep.show import find_watcher
from framework.sweep.state import DONE, FAILED, INTERRUPTED, PENDING, REFUSED, RUNNING, State, read_state_named

SUMMARY = (
    "Run many configs: every combination of the values given, one worker process for each device.\n"
    "All jobs are checked before the first starts; the same --dir resumes what is missing."
)
EXAMPLES = (
    "framework sweep seed='range(0,4)' request.guidance_scale=1,3 --dry-run",
    "framework sweep pipeline=wan2,ltx residency='glob(*)' --dir sweeps/first --devices 0,1",
    "framework sweep --dir sweeps/first --status",
)
USAGE = "[KEY=VALUES ...] [FLAGS]"
OWN = frozenset(
    {
        "dry_run", "dir", "status", "extend", "devices", "devices_per_job", "jobs_per_device", "retries", "fail_fast",
        "max_failures", "engine", "prompts",
    }
)  # fmt: skip
ACCEPTED = (COMPOSING - {"cfg", "info"}) | OWN
Say = Callable[[str], None]


def main(overrides: list[str], flags: Flags) -> int:
    """Plan, show, start, resume or report a sweep; return the exit code."""
    folder = expand(flags.dir) if flags.dir else None
    manifest = read_manifest(folder) if folder is not None else None
    if flags.status:
        return _status(folder, manifest)
    before = is_connected()
    try:
        return _sweep(overrides, flags, manifest)
    finally:
        if not before:
            disconnect()


def _sweep(overrides: list[str], flags: Flags, manifest: Manifest | None) -> int:
    say = _say(flags)
    prepare = _prepare(flags, say)
    if manifest is not None and not overrides and not flags.prompts:
        plan = plan_resume(flags, prepare, manifest)
    else:
        plan = plan_sweep(overrides, flags, prepare, manifest)
    for note in plan.notes:
        say(f"note: {note}")
    for line in report(plan.jobs):
        print(line, file=sys.stderr)
    if flags.dir and plan.output.name is not None:
        raise ConfigError.of(KEY, "output.name names a folder too", hint="keep one of them")
    if flags.dry_run:
        if flags.dir:
            look_at_folder(flags.dir)
        return _dry_run(plan)
    place = find_folder(flags.dir, plan.output)
    say(f"{len(plan.jobs)} jobs on {', '.join(device.label for device in plan.devices)} in {place}")
    return _finish(conduct(plan, place, lambda jobs, states: find_watcher(sys.stderr, jobs, states, flags.quiet), say))


def _say(flags: Flags) -> Say:
    return (lambda line: None) if flags.quiet else lambda line: print(line, file=sys.stderr, flush=True)


def _prepare(flags: Flags, say: Say) -> Callable[[RunSpec], None]:
    """Fetch what a job needs, once for all jobs that need the same; a dry run fetches nothing."""
    asked: set[str] = set()

    def prepare(spec: RunSpec) -> None:
        key = repr((spec.pipeline.model, spec.pipeline.components, spec.loras))
        if flags.dry_run or key in asked:
            return
        asked.add(key)
        used = build_graph(spec.pipeline).used_components()
        fetch_missing(spec.pipeline, used, spec.loras, say, progress=not flags.quiet, bound=spec.budget.disk)

    return prepare


def _dry_run(plan: SweepPlan) -> int:
    """The table of jobs and on what they would run; makes no folder."""
    rows = []
    for job in plan.jobs:
        shown = values_shown(job.values)
        status = "refused" if job.refusal is not None else "ok"
        rows.append((str(job.number), status, *(shown.get(key, "-") for key in plan.keys)))
    print(format_table(("job", "check", *plan.keys), rows))
    refused = sum(job.refusal is not None for job in plan.jobs)
    on = ", ".join(device.label for device in plan.devices)
    print(f"{len(plan.jobs)} jobs, {refused} refused; devices: {on}; nothing was run")
    return REFUSED_CODE if refused else 0


def _finish(outcome: Outcome) -> int:
    """Say what came out, with the reason and the log of everything that is not done."""
    for state in outcome.states:
        if state.status in (FAILED, REFUSED, INTERRUPTED):
            print(_line(outcome.folder, state), file=sys.stderr)
    code = exit_code(outcome.states)
    if any(state.status not in (DONE, REFUSED) for state in outcome.states):
        print(f"resume with: framework sweep --dir {outcome.folder}", file=sys.stderr)
    print(outcome.results)
    if outcome.report is not None:
        print(outcome.report)
    print(counts(outcome.states))
    if outcome.interrupted:
        raise Interrupted("interrupted; running jobs are noted as interrupted and run again when the sweep is resumed")
    return code


def _line(folder: Path, state: State) -> str:
    log = folder / state.name / "log.txt"
    where = f"; log: {log}" if log.is_file() else ""
    return f"job {state.number} {state.status}: {state.error or 'no reason given'}{where}"


def _status(folder: Path | None, manifest: Manifest | None) -> int:
    """The state of every job of a sweep, as its folder has it."""
    if folder is None or manifest is None:
        reason = f"'{folder}' holds no sweep" if folder is not None else "needs the folder of a sweep"
        raise ConfigError.of("--status", reason, hint="write --dir FOLDER --status")
    running = is_running(folder)
    keys = tuple(dict.fromkeys(key for entry in manifest.jobs for key in entry.values))
    rows, states = [], []
    for entry in manifest.jobs:
        state = read_state_named(folder, entry.name) or State(entry.name, entry.number, entry.values, entry.words)
        if state.status == RUNNING and not running:
            state.status, state.error = INTERRUPTED, "the sweep ended before the job"
        states.append(state)
        shown = values_shown(entry.values, 28)
        seconds = "" if state.seconds is None else f"{state.seconds:.1f} s"
        cells = (str(entry.number), state.status, state.device, seconds, str(len(state.attempts)))
        rows.append((*cells, *(shown.get(key, "-") for key in keys)))
    print(format_table(("job", "state", "device", "time", "attempts", *keys), rows))
    for state in states:
        if state.status not in (PENDING, RUNNING) and state.error:
            print(_line(folder, state))
    print(f"{counts(states)}; {'running' if running else 'not running'}")
    return 0
