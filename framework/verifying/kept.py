"""What two run folders have kept of stages and steps: the first tensor that differs. Imports torch in functions."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from framework.verifying.marks import VALUE, Mark, first_shared_difference

if TYPE_CHECKING:
    from framework.artifacts.files import About

RESULT = "result"  # of the state of a loop: what its scheduler returned


def first_kept_difference(reference: Path, other: Path, stages: Sequence[str]) -> tuple[Mark | None, int]:
    """Compare what both folders have kept, in the order of `stages`; return the first difference and how much there is.

    Steps come before the result of their stage. A damaged file is passed over: it says nothing of a run.
    """
    return first_shared_difference(list(_marks(reference, stages)), list(_marks(other, stages)))


def _marks(folder: Path, stages: Sequence[str]) -> Iterator[Mark]:
    import torch

    from framework.artifacts.files import About, BadArtifact, find_artifacts, load_artifact
    from framework.verifying.fingerprint import tensor_sha256, tensors_of

    found = [(path, about) for path, about in find_artifacts(folder) if isinstance(about, About)]
    for path, about in sorted(found, key=lambda entry: _order(entry[1], stages)):
        try:
            values = load_artifact(path, torch.device("cpu"))
        except BadArtifact:
            continue
        for name, tensor in tensors_of(_compared(about, values), ""):
            sha256 = tensor_sha256(tensor)
            if sha256 is not None:
                place = (about.request, about.stage, about.step, about.step or 0)
                yield Mark(*place, VALUE, name.lstrip("."), sha256)


def _order(about: "About", stages: Sequence[str]) -> tuple[Any, ...]:
    place = stages.index(about.stage) if about.stage in stages else len(stages)
    return (about.request, place, about.step is None, about.step or 0)


def _compared(about: "About", values: dict[str, Any]) -> dict[str, Any]:
    """Of a loop's state only the sample: the rest of it is the scheduler's own."""
    if about.step is None:
        return values
    return {"latents": values.get(RESULT)}
