"""Sums up the log of the full product of the equality suite: `python tests/equality/summarise_product.py LOG ...`.

Writes `full_product.json` and `full_product.md` beside this file. No torch.
"""

import json
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

from equality_cases import MODES, PIPELINES, full_product

PACKAGES = ("torch", "diffusers", "transformers", "accelerate")


@dataclass(frozen=True, slots=True)
class Case:
    """One case that passed, with the time it took and the commit it ran on."""

    case: str
    seconds: float
    commit: str

    def line(self) -> str:
        return json.dumps(asdict(self)) + "\n"


def read(files: Sequence[Path]) -> list[Case]:
    return [Case(**json.loads(line)) for file in files for line in file.read_text().splitlines()]


def mode_of(case: str) -> tuple[str, str]:
    """Pipeline and mode of a case."""
    name, _, rest = case.partition("-")
    return name, next(mode for mode in MODES if rest.startswith(mode))


def count(cases: Iterable[str]) -> dict[str, dict[str, int]]:
    """How many cases there are, by pipeline and mode."""
    found: dict[str, dict[str, int]] = {}
    for name, mode in sorted(map(mode_of, cases)):
        of_pipeline = found.setdefault(name, {})
        of_pipeline[mode] = of_pipeline.get(mode, 0) + 1
    return found


def summarise(cases: Sequence[Case], versions: Mapping[str, str]) -> dict[str, Any]:
    """Return what is committed; ends the program if a case of the product has not passed."""
    passed = {case.case: case for case in cases}
    wanted = [f"{name}-{plan}" for name in PIPELINES for plan in full_product()]
    missing = [case for case in wanted if case not in passed]
    if missing:
        raise SystemExit(f"{len(missing)} of {len(wanted)} cases are missing, the first: {missing[0]}")
    kept = [passed[case] for case in wanted]
    commits = [case.commit for case in kept]
    return {
        "cases": len(kept),
        "all_equal": True,
        "date": datetime.now(UTC).date().isoformat(),
        "seconds": round(sum(case.seconds for case in kept)),
        "commits": {commit: commits.count(commit) for commit in sorted(set(commits))},
        "versions": dict(versions),
        "counts": count(wanted),
    }


def page(summary: Mapping[str, Any]) -> str:
    """The summary as a short page."""
    modes = [mode for mode in MODES if any(mode in counts for counts in summary["counts"].values())]
    rows = [
        f"| {name} | " + " | ".join(str(n.get(m, 0)) for m in modes) + " |" for name, n in summary["counts"].items()
    ]
    versions = ", ".join(f"{name} {number}" for name, number in summary["versions"].items())
    return "\n".join(
        [
            "# The full product of the equality suite",
            "",
            f"{summary['cases']} cases, each bit-equal to everything resident over three requests; {summary['date']}, "
            f"commit {', '.join(summary['commits'])}, {versions}; {summary['seconds'] / 60:.0f} minutes in all.",
            "",
            "| pipeline | " + " | ".join(modes) + " |",
            "|---" * (len(modes) + 1) + "|",
            *rows,
            "",
            "Made by `pytest -m slow -k full_product tests/equality` and `python tests/equality/summarise_product.py`.",
            "",
        ]
    )


def main(files: Sequence[str]) -> None:
    summary = summarise(read([Path(file) for file in files]), {name: version(name) for name in PACKAGES})
    here = Path(__file__).parent
    (here / "full_product.json").write_text(json.dumps(summary, indent=2) + "\n")
    (here / "full_product.md").write_text(page(summary))


if __name__ == "__main__":
    main(sys.argv[1:])
