"""The work of a request before it runs: from the stored profiles, else by one pass over shapes. No torch at import.

Only a pass imports torch and the libraries; what it finds is stored under all it depends on.
"""

from framework.graph import Graph
from framework.planning.facts import RunWork
from framework.planning.profile_cache import read_profile, write_profile
from framework.planning.profile_key import profile_key
from framework.planning.profile_source import Described, describe
from framework.spec import RequestSpec, RunSpec

SIM = "sim"


def work_of(spec: RunSpec, graph: Graph, request: RequestSpec, *, target: str) -> RunWork:
    """Return what `request` makes every component of `spec` compute, move and hold, if all were resident.

    `target` is the kind of device (`cuda`, `sim`, `cpu`, `mps`, ...); `sim` and `cpu` have the same kernels. Texts
    count only where they change what is computed. A miss takes seconds and runs in this process. Raises `LoadError`
    where nobody knows the checkpoint, and `PlanError` where the pipeline's work depends on more than shapes.
    """
    described = describe(spec.pipeline)
    kind = SIM if target == "cpu" else target
    keys = _keys(spec, graph, request, described, kind)
    found = _read(keys)
    if found is not None:
        return found
    from framework.planning.profile_run import profile_request

    work, texts_matter = profile_request(spec, graph, request, described, kind)
    write_profile(keys[int(texts_matter)], work)
    return work


def stored_work(spec: RunSpec, graph: Graph, request: RequestSpec, *, target: str) -> RunWork | None:
    """Return the work of `request` if it has been worked out before, None where that would take a pass.

    Raises `LoadError` where nobody knows the checkpoint.
    """
    kind = SIM if target == "cpu" else target
    return _read(_keys(spec, graph, request, describe(spec.pipeline), kind))


def _keys(spec: RunSpec, graph: Graph, request: RequestSpec, described: Described, kind: str) -> list[str]:
    """Names of the profile that holds for any text, and of the one for these texts."""
    return [profile_key(spec, graph, request, described, kind, texts=texts) for texts in (False, True)]


def _read(keys: list[str]) -> RunWork | None:
    return next((found for key in keys if (found := read_profile(key)) is not None), None)
