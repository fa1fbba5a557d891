"""What is kept of a bench: its JSON with the machine it ran on, and the same as Markdown. No torch."""

import json
import os
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench.catalogue import BENCHES, command_of
from framework.outputs.machine import installed_versions, machine_facts
from framework.paths import ROOT

FOLDER = Path(__file__).parent / "results"
SHOWN = ("python", "torch", "diffusers", "transformers", "accelerate")


@dataclass(frozen=True, slots=True)
class Result:
    """One bench's answer. `seconds` is how long it took, `load` how many others wanted a core when it began."""

    name: str
    command: str
    found: Any
    seconds: float
    load: float
    machine: Mapping[str, Any]

    @classmethod
    def of(cls, name: str, found: Any, seconds: float, load: float, quick: bool = False) -> "Result":
        return cls(name, command_of(name, quick), found, round(seconds, 1), round(load, 2), machine())

    def markdown(self) -> str:
        """Return the page of this result: question, command, figures, machine."""
        bench = BENCHES[self.name]
        kind = "Simulated: times are those of the simulated device.\n\n" if bench.simulated else ""
        figures = "\n".join(bench.table(self.found))
        return f"# {bench.question}\n\n`{self.command}`\n\n{kind}{figures}\n\n{self.where()}\n"

    def where(self) -> str:
        """Return machine and versions in one line."""
        facts = self.machine
        versions = ", ".join(f"{name} {facts['versions'].get(name)}" for name in SHOWN)
        text = f"{facts['processor']}, {facts['num_cpus']} cores; {versions}; commit {facts['commit']}; "
        return text + f"took {self.seconds:.0f} s, load at its start {self.load:.1f}."


def machine() -> dict[str, Any]:
    """Return processor, memory, versions and commit; no host name and no path."""
    facts = machine_facts()
    return {
        "processor": _processor(),
        "num_cpus": facts["num_cpus"],
        "memory_bytes": facts["memory_bytes"],
        "system": facts["system"],
        "versions": {name: version for name, version in installed_versions().items() if name in SHOWN},
        "commit": _commit(),
    }


def load_now() -> float:
    """Return the average number of runnable processes of the last minute; 0 where the system does not tell."""
    return os.getloadavg()[0] if hasattr(os, "getloadavg") else 0.0


def write(result: Result, folder: Path) -> Path:
    """Write `NAME.json` and `NAME.md` and return the latter."""
    folder.mkdir(parents=True, exist_ok=True)
    fields = {name: getattr(result, name) for name in ("command", "seconds", "load", "machine", "found")}
    (folder / f"{result.name}.json").write_text(json.dumps(fields, indent=1) + "\n", encoding="utf-8")
    page = folder / f"{result.name}.md"
    page.write_text(result.markdown(), encoding="utf-8")
    return page


def read(path: Path) -> Result:
    """Return what `write` has put into `NAME.json`."""
    return Result(path.stem, **json.loads(path.read_text(encoding="utf-8")))


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        lines = []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else str(machine_facts()["architecture"])


def _commit() -> str | None:
    command = ["git", "describe", "--always", "--exclude", "*", "--dirty"]
    try:
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        return None
    return done.stdout.strip()
