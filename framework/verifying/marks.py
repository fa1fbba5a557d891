"""Hashes of what a run computes, in order, and the first place where two runs differ. No torch."""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import zip_longest

VALUE, WEIGHT, INPUT, OUTPUT = "value", "weight", "input", "output"


@dataclass(frozen=True, slots=True)
class Place:
    """A part of a run: what comes after `num_steps` steps of a stage, or the whole stage where it has no steps."""

    request: int
    stage: str
    num_steps: int


@dataclass(frozen=True, slots=True)
class Mark:
    """The hash of one tensor at one moment.

    `kind` is `value` for what crosses a step or a stage; of a component, `weight`, `input` and `output` belong to the
    module whose name begins `tensor`. `step` counts from 1, None is the end of a stage; `num_steps` are done by then.
    """

    request: int
    stage: str
    step: int | None
    num_steps: int
    kind: str
    tensor: str
    sha256: str
    component: str | None = None

    @property
    def place(self) -> Place:
        """The part of the run in which it was computed."""
        return Place(self.request, self.stage, self.num_steps - (self.step is not None))

    def names(self) -> tuple[object, ...]:
        """Everything but the hash."""
        return (self.request, self.stage, self.step, self.kind, self.tensor, self.component)

    def where(self) -> str:
        """Return `request 1, stage 'denoise', step 3: latents`."""
        at = f", step {self.step}" if self.step is not None else ""
        return f"request {self.request + 1}, stage '{self.stage}'{at}: {self.tensor}"

    def inside(self) -> str:
        """Return `weight 'blocks.1.attn1.to_q.weight' of component 'transformer'`."""
        return f"{self.kind} '{self.tensor}' of component '{self.component}'"


def first_difference(reference: Sequence[Mark], other: Sequence[Mark]) -> Mark | None:
    """Return the first mark of `other` that is not that of `reference`; None where all are equal.

    Where one run is longer, or does something else, the first mark that only one of them has.
    """
    for expected, found in zip_longest(reference, other):
        if expected is None or found is None:
            return found or expected
        if expected != found:
            return found
    return None


def first_shared_difference(reference: Sequence[Mark], other: Sequence[Mark]) -> tuple[Mark | None, int]:
    """Compare what both have, each time it comes; return the first difference and how many were compared."""
    known = dict(_numbered(reference))
    shared = [(known[key], mark) for key, mark in _numbered(other) if key in known]
    return next((found for expected, found in shared if expected.sha256 != found.sha256), None), len(shared)


def _numbered(marks: Sequence[Mark]) -> Iterator[tuple[object, Mark]]:
    """Tell apart the first, second, ... time that something comes."""
    times: Counter[object] = Counter()
    for mark in marks:
        times[mark.names()] += 1
        yield (mark.names(), times[mark.names()]), mark
