"""Plans the jobs of a sweep before the first one starts: whether each fits, and what it takes of its device.

Where a pass over shapes is needed, which takes torch, a process of its own makes it: `python -m
framework.sweep.foresight` gets jobs as JSON lines and answers in kind. Imports torch in that process only.
"""

import json
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from framework.compose.composer import check
from framework.errors import FrameworkError, PlanError
from framework.graph import build_graph
from framework.planning.machine import resolve_hardware
from framework.planning.plan import Planner
from framework.runtime.own_devices import own_devices
from framework.spec import Bound, RunSpec
from framework.sweep.job import Job, unpack

LIMIT_S = 1800.0
WITHOUT_MEMORY = ("cpu", "mps")


@dataclass(frozen=True, slots=True)
class Foreseen:
    """What a plan says of a job; `known` is False where there is none."""

    refusal: str | None = None
    peak_bytes: int | None = None
    known: bool = True


@dataclass(frozen=True, slots=True)
class Question:
    """A job on a machine: `hardware` in place of its own where that is not None, and at most `device_bytes` there."""

    job: Job
    hardware: Mapping[str, Any] | None = None
    device_bytes: int | None = None

    @property
    def whole(self) -> RunSpec:
        """The job alone on that machine."""
        assert self.job.spec is not None
        return on_hardware(self.job.spec, self.hardware)

    @property
    def spec(self) -> RunSpec:
        return bounded_spec(self.whole, self.device_bytes)


@dataclass(slots=True)
class Foresight:
    """Answers questions; what jobs share is planned once."""

    passes: bool = False
    _planner: Planner = field(init=False)

    def __post_init__(self) -> None:
        self._planner = Planner(connect=False, passes=self.passes)

    def of(self, spec: RunSpec) -> Foreseen:
        """Plan `spec` where its device has memory of its own and nothing else is in doubt."""
        machine = resolve_hardware(spec.config.get("hardware"), spec.device)
        unified = machine.profile.unified or machine.profile.vendor == "cpu"
        if unified or spec.device.partition(":")[0] in WITHOUT_MEMORY:
            return Foreseen()
        graph = build_graph(spec.pipeline)
        if own_devices(spec, graph):
            return Foreseen(known=False)
        try:
            plan = self._planner.plan_if_known(spec, graph, machine)
        except PlanError as error:
            return Foreseen(refusal=str(error).splitlines()[0])
        except FrameworkError:
            return Foreseen(known=False)
        return Foreseen(known=False) if plan is None else Foreseen(peak_bytes=plan.forecast.peak_bytes)


def foresee(questions: Sequence[Question], every: bool = False) -> list[Foreseen]:
    """Answer all questions; passes are made for jobs that the planner is to place, or for `every` one."""
    here = Foresight()
    found = [here.of(question.spec) for question in questions]
    open_ = [
        number
        for number, (question, answer) in enumerate(zip(questions, found, strict=True))
        if not answer.known and (every or question.spec.planned)
    ]
    for number, answer in zip(open_, _ask([questions[number] for number in open_]), strict=False):
        found[number] = answer
    return found


def _ask(questions: Sequence[Question]) -> list[Foreseen]:
    """Have another process make the passes; where it fails, each job will find out by itself."""
    if not questions:
        return []
    from framework.sweep.process import child_environment

    lines = [
        json.dumps({"parcel": question.job.parcel, "hardware": question.hardware, "bytes": question.device_bytes})
        for question in questions
    ]
    try:
        done = subprocess.run(
            [sys.executable, "-P", "-m", "framework.sweep.foresight"],
            input="\n".join(lines) + "\n",
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            env=child_environment({}),
            timeout=LIMIT_S,
            check=True,
        )
        return [Foreseen(**json.loads(line)) for line in done.stdout.splitlines() if line.startswith('{"refusal"')]
    except (OSError, subprocess.SubprocessError, ValueError, TypeError):
        return []


def on_hardware(spec: RunSpec, hardware: Mapping[str, Any] | None) -> RunSpec:
    """Return `spec` for another machine than its config says."""
    return spec if hardware is None else replace(spec, config={**spec.config, "hardware": dict(hardware)})


def bounded_spec(spec: RunSpec, device_bytes: int | None) -> RunSpec:
    """Return `spec` with at most `device_bytes` of its device: the share of one job of several."""
    own = spec.budget.device
    if device_bytes is None or (own is not None and own.size_bytes is not None and own.size_bytes <= device_bytes):
        return spec
    bound = Bound(f"{device_bytes} bytes, the share of one job", size_bytes=device_bytes)
    return replace(spec, budget=replace(spec.budget, device=bound))


def main() -> int:
    """Answer each line of standard input with one of standard output."""
    foresight = Foresight(passes=True)
    for line in sys.stdin:
        asked = json.loads(line)
        try:
            spec = bounded_spec(on_hardware(check(unpack(asked["parcel"])), asked["hardware"]), asked["bytes"])
            answer = foresight.of(spec)
        except FrameworkError:
            answer = Foreseen(known=False)
        print(json.dumps(asdict(answer)), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
