"""Compares runs: of a config with the all-resident one, or with a record; looks closer where they differ.

Imports torch in functions only.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from framework.errors import FrameworkError
from framework.outputs.machine import installed_versions
from framework.platforms.hardware import DEFAULT_SIM_HARDWARE, as_mapping, load_hardware
from framework.spec import BudgetSpec, RunSpec
from framework.verifying.kept import first_kept_difference
from framework.verifying.marks import VALUE, Mark, first_difference, first_shared_difference
from framework.verifying.trial import Trial, run_trial

Say = Callable[[str], None]
ROOMY_GIB = 65536.0  # of a simulated card: what the reference needs is not the question
REFERENCE = "reference"


@dataclass(frozen=True, slots=True)
class Verdict:
    """What became of one config. `first` is where it began to differ, `inside` the tensor of a component that did it.

    `notes` are further findings, a line each. The reference has no verdict but its own run.
    """

    trial: Trial
    differs: bool = False
    first: Mark | None = None
    inside: Mark | None = None
    notes: tuple[str, ...] = ()

    @property
    def error(self) -> FrameworkError | None:
        return self.trial.error

    @property
    def unproved(self) -> tuple[str, ...]:
        """Components that were to be offloaded and were never moved."""
        return () if self.differs or self.error is not None else self.trial.unmoved


@dataclass(slots=True)
class _Court:
    """Runs what is to be compared, each in a folder below `folder`; `resident` is the reference's config."""

    resident: RunSpec
    folder: Path
    say: Say

    def run(self, spec: RunSpec, name: str, **options: Any) -> Trial:
        self.say(f"running {name} ...")
        return run_trial(spec, name, self.folder / name.replace(" ", "-"), **options)

    def reference_for(self, trial: Trial) -> RunSpec:
        """The all-resident config with the numerics that were decided for `trial`, and memory enough."""
        tiling = trial.plan["vae_tiling"] if trial.plan is not None else self.resident.numerics.vae_tiling
        numerics = replace(self.resident.numerics, vae_tiling=tiling)
        return with_room(replace(self.resident, numerics=numerics))

    def locate(self, first: Mark, spec: RunSpec, trial: Trial, reference: RunSpec) -> tuple[Mark | None, str]:
        """Run both again and look at every module where they part; return what differs there, or why nothing does."""
        closer = {
            kind: self.run(one, f"{trial.name} {kind} looked at closely", closely=first.place)
            for kind, one in ((REFERENCE, reference), ("itself", spec))
        }
        error = next((one.error for one in closer.values() if one.error is not None), None)
        if error is not None:
            return None, f"the closer look failed: {error}"
        modules = [[mark for mark in one.marks if mark.kind != VALUE] for one in closer.values()]
        inside, compared = first_shared_difference(*modules)
        if inside is not None:
            return inside, ""
        if first_difference(*(one.marks for one in closer.values())) is None:
            return None, "a second look found no difference: it comes and goes, as a race between copies would"
        return None, f"no module did it: {compared} weights, inputs and outputs are equal there"


def judge(candidates: Mapping[str, RunSpec], resident: RunSpec, folder: Path, say: Say) -> list[Verdict]:
    """Run every candidate and the all-resident config; the reference comes first in the answer.

    Raises the error of a reference that fails: there is nothing to compare with.
    """
    court = _Court(resident, folder, say)
    trials = {name: court.run(spec, name) for name, spec in candidates.items()}
    references: dict[Any, Trial] = {}
    verdicts = []
    for name, trial in trials.items():
        if trial.error is not None:
            verdicts.append(Verdict(trial))
            continue
        spec = court.reference_for(trial)
        key = spec.numerics.vae_tiling
        if key not in references:
            references[key] = _sound(court.run(spec, _numbered(REFERENCE, len(references))))
        verdicts.append(_compared(court, candidates[name], trial, spec, references[key]))
    return [*map(Verdict, references.values()), *verdicts]


def judge_record(
    candidates: Mapping[str, RunSpec],
    resident: RunSpec,
    record: Mapping[str, Any],
    frames: Mapping[int, list[str]],
    source: Path,
    folder: Path,
    say: Say,
) -> list[Verdict]:
    """Run every candidate and compare with the `frames` of `record`, hashes by request; `source` is its folder.

    Where they differ the all-resident config says whether a placement does it, or something outside the config.
    """
    court, verdicts = _Court(resident, folder, say), []
    for name, spec in candidates.items():
        trial = court.run(spec, name, keeps=True)
        if trial.error is not None or _has(trial, frames):
            verdicts.append(Verdict(trial))
            continue
        first, compared = first_kept_difference(source, trial.folder, list(spec.pipeline.stages))
        notes = [] if first is not None else [_nothing_kept(compared)]
        inside = None
        if set(trial.modes.values()) - {"resident"}:
            reference = court.reference_for(trial)
            plain = court.run(reference, f"{name} all resident")
            if plain.error is None and _has(plain, frames):
                own = _compared(court, spec, trial, reference, plain)
                first, inside, notes = own.first or first, own.inside, ["the placement does it", *own.notes]
            elif plain.error is None and plain.frames == trial.frames:
                notes.append("with everything resident the frames are the same as these: no placement does it")
        notes += changes_since(record)
        verdicts.append(Verdict(trial, True, first, inside, tuple(notes)))
    return verdicts


def with_room(spec: RunSpec) -> RunSpec:
    """Return the spec without a bound on device memory; a simulated card gets as much as anybody could want."""
    config = dict(spec.config)
    if spec.device.partition(":")[0] == "sim":
        named = config.get("hardware") or {"name": "auto"}
        own = named if named.get("name") != "auto" else as_mapping(load_hardware(DEFAULT_SIM_HARDWARE))
        config["hardware"] = {**own, "memory_gib": ROOMY_GIB}
    budget = replace(spec.budget, device=None) if spec.budget != BudgetSpec() else spec.budget
    return replace(spec, config=config, budget=budget)


def changes_since(record: Mapping[str, Any]) -> Iterator[str]:
    """Yield a line for every package that has another version than a record says."""
    then, now = record.get("versions") or {}, installed_versions()
    for name in sorted({*then, *now}):
        if then.get(name) != now.get(name):
            yield f"since the record: {name} {then.get(name) or 'not there'} -> {now.get(name) or 'not there'}"


def _compared(court: _Court, spec: RunSpec, trial: Trial, reference: RunSpec, expected: Trial) -> Verdict:
    first = first_difference(expected.marks, trial.marks)
    if first is None:
        same = expected.frames == trial.frames
        return Verdict(trial, not same, notes=() if same else ("only what was written differs",))
    inside, note = court.locate(first, spec, trial, reference)
    return Verdict(trial, True, first, inside, (note,) if note else ())


def _sound(reference: Trial) -> Trial:
    if reference.error is not None:
        reference.error.add_note(
            "this was the all-resident reference; `verify --from FOLDER` compares with a run of another machine"
        )
        raise reference.error
    return reference


def _has(trial: Trial, frames: Mapping[int, list[str]]) -> bool:
    return all(trial.frames.get(index) == hashes for index, hashes in frames.items())


def _nothing_kept(compared: int) -> str:
    if compared:
        return f"{compared} tensors that both have kept are equal: it begins after them"
    return "the record's folder has kept nothing to compare; checkpoint.stages=all and output.keep_artifacts=true do"


def _numbered(name: str, number: int) -> str:
    return name if not number else f"{name} {number + 1}"
