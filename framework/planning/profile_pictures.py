"""Pictures for a request that needs some and names none: grey ones of its size. No torch."""

import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from framework.errors import Problem
from framework.graph import Graph
from framework.planning.profile_source import Described
from framework.registry import FAMILIES
from framework.spec import RequestSpec, RunSpec

PICTURES = ("image", "mask")
SIDE = 1024
"""Pixels of a picture whose request says no size."""


@contextmanager
def pictured(
    spec: RunSpec, graph: Graph, request: RequestSpec, described: Described, view_class: Any
) -> Iterator[RequestSpec]:
    """Yield `request` with a picture for each of `image` and `mask` that its pipeline would miss."""
    keys = {problem.key for problem in _problems(spec, graph, request, described, view_class)}
    missing = [name for name in PICTURES if getattr(request, name) is None and f"request.{name}" in keys]
    if not missing:
        yield request
        return
    from PIL import Image

    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "grey.png"
        Image.new("RGB", (request.width or SIDE, request.height or SIDE), (128, 128, 128)).save(file)
        pictures: dict[str, Any] = dict.fromkeys(missing, str(file))
        yield replace(request, **pictures)


def _problems(
    spec: RunSpec, graph: Graph, request: RequestSpec, described: Described, view_class: Any
) -> Sequence[Problem]:
    """What a run would refuse before it loads."""
    found: list[Problem] = []
    if spec.pipeline.family is not None:
        found += FAMILIES.get(spec.pipeline.family)().check_request(request, described.index.options, described.configs)
    for node in graph.nodes:
        check = getattr(node.stage_class, "check_call", None)
        if check is not None:
            found += check(view_class, spec.pipeline.args, [request])
    return found
