"""What warm workers save: a sweep of 24 jobs beside as many separate `run` commands.

    python -m bench.sweep [--jobs 24] [--runs 24] [--json]

One worker on the processor, the embedded model with two steps. With fewer `--runs` than jobs their mean stands for the
rest. Exits with 1 when the sweep takes more than 0.35 of the time of the separate commands.
"""

import argparse
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path

LIMIT = 0.35
WORDS = ("request.num_inference_steps=2", "device=cpu", "--quiet")


def timed(*words: str) -> float:
    """Run the program and return the seconds that it took."""
    started = time.perf_counter()
    subprocess.run([sys.executable, "-m", "framework", *words, *WORDS], check=True, stdout=subprocess.DEVNULL)
    return time.perf_counter() - started


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--jobs", type=int, default=24)
    parser.add_argument("--runs", type=int, default=24)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args(argv)
    with tempfile.TemporaryDirectory() as folder:
        seeds = f"seed=range(0,{options.jobs})"
        sweep_s = timed("sweep", seeds, "--devices", "none:1", "--dir", str(Path(folder, "sweep")))
        runs_s = [timed("run", f"seed={seed}", f"output.root={folder}") for seed in range(options.runs)]
    separate_s = sum(runs_s) / len(runs_s) * options.jobs
    share = sweep_s / separate_s
    if options.json:
        print(json.dumps({"sweep_s": sweep_s, "separate_s": separate_s, "runs": options.runs, "share": share}))
    else:
        print(f"{options.jobs} jobs: sweep {sweep_s:.1f} s, separate runs {separate_s:.1f} s ({options.runs} measured)")
        print(f"share {share:.2f}, at most {LIMIT}")
    return 0 if share <= LIMIT else 1


if __name__ == "__main__":
    sys.exit(main())
