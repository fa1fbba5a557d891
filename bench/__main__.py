"""The runner of all benches: each in a process of its own, its answer as Markdown or JSON. No torch.

    python -m bench NAME [--json] [--quick] [--out FOLDER]
    python -m bench all --quick        # as CI runs it: nothing may crash, and no figure counts
    python -m bench all                # under 40 minutes on an idle machine; writes bench/results

A full run writes into bench/results, a quick one only where `--out` says. The exit code is 1 when a bench crashed; a
goal that was missed is a result, not a failure.
"""

import argparse
import json
import os
import subprocess
import sys
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from bench.catalogue import BENCHES
from bench.results import FOLDER, Result, load_now, write

AT_ONCE = 2
"""Quick benches that run at the same time: their figures do not count."""
LAST_LINES = 12


class Crash(Exception):
    """A bench ended without an answer."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run what the command line asks for; return the exit code."""
    options = _parser().parse_args(argv)
    names = list(BENCHES) if options.name == "all" else [options.name]
    folder = options.out or (None if options.quick else FOLDER)
    crashed = 0
    with ThreadPoolExecutor(AT_ONCE if options.quick else 1) as pool:
        for name, running in [(name, pool.submit(_run, name, options.quick)) for name in names]:
            try:
                _give(running.result(), folder if BENCHES[name].kept else options.out, options.json)
            except Crash as crash:
                crashed += 1
                print(f"{name} crashed:\n{crash}", file=sys.stderr)
    return 1 if crashed else 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m bench", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("name", choices=[*BENCHES, "all"])
    parser.add_argument("--json", action="store_true", help="print JSON, one line for each bench")
    parser.add_argument("--quick", action="store_true", help="try that it works; the figures mean nothing")
    parser.add_argument("--out", type=Path, help="write JSON and Markdown into this folder")
    return parser


def _run(name: str, quick: bool) -> Result:
    bench, load, began = BENCHES[name], load_now(), time.perf_counter()
    command = [sys.executable, "-m", f"bench.{name}", "--json", *(bench.quick if quick else bench.full)]
    environment = {"HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "1", **os.environ}
    done = subprocess.run(command, capture_output=True, text=True, env=environment)
    return Result.of(name, _answer(done), time.perf_counter() - began, load, quick)


def _answer(done: subprocess.CompletedProcess[str]) -> Any:
    """The last line of what was printed is the answer, whatever the exit code says of its goal."""
    lines = done.stdout.strip().splitlines()
    try:
        return json.loads(lines[-1])
    except (IndexError, ValueError):
        last = "\n".join((done.stdout + done.stderr).strip().splitlines()[-LAST_LINES:])
        raise Crash(f"exit code {done.returncode}\n{last}") from None


def _give(result: Result, folder: Path | None, as_json: bool) -> None:
    if as_json:
        print(json.dumps({"bench": result.name, "seconds": result.seconds, "found": result.found}), flush=True)
    else:
        print(result.markdown(), flush=True)
    if folder is not None:
        write(result, folder)


if __name__ == "__main__":
    sys.exit(main())
