"""Writes tests/planning/works: the work of every shipped pipeline at its default request, by one pass over shapes each.

    python tools/make_works.py [PIPELINE ...]

Takes minutes. The tests plan from these files on all machines; `test_shipped_works.py -m slow` makes a few anew and
compares. Make them again when stages, families or default requests change. Imports torch.
"""

import gzip
import json
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from framework.compose import compose
from framework.errors import FrameworkError
from framework.graph import build_graph
from framework.paths import CONF, ROOT
from framework.planning import profile_cache
from framework.planning.facts import RunWork
from framework.planning.profile_run import profile_request
from framework.planning.profile_source import describe
from framework.spec import RunSpec

FOLDER = ROOT / "tests" / "planning" / "works"
NONE = ("diffusers",)  # it has no model of its own
TARGET = "cuda"


def pipelines() -> list[str]:
    """Names of the shipped pipelines that have a model."""
    return sorted(path.stem for path in (CONF / "pipeline").glob("*.yaml") if path.stem not in NONE)


def specs_of(name: str, picture: Path) -> Iterator[RunSpec]:
    """Yield the default request, then with a picture, then with a mask too: the first that works counts."""
    for files in ((), ("image",), ("image", "mask")):
        words = [f"pipeline={name}", "device=cuda", "prompt=any", *(f"request.{file}={picture}" for file in files)]
        try:
            yield compose(words)
        except FrameworkError:
            continue  # the pipeline does not read it


def work_of(spec: RunSpec) -> RunWork:
    request = spec.requests[0]
    return profile_request(spec, build_graph(spec.pipeline), request, describe(spec.pipeline), TARGET)[0]


def works_of(name: str, picture: Path) -> dict[str, RunWork]:
    """Return the work as it is, and with the VAE in tiles where it can work so. Raises `SystemExit`."""
    reasons = []
    for spec in specs_of(name, picture):
        try:
            found = {"plain": work_of(spec)}
        except FrameworkError as error:
            reasons.append(str(error))
            continue
        try:
            found["tiled"] = work_of(replace(spec, numerics=replace(spec.numerics, vae_tiling=True)))
        except FrameworkError as error:
            print(f"{name}, tiled: {error}", flush=True)
        return found
    raise SystemExit(f"{name}: {'; '.join(reasons)}")


def write(name: str, picture: Path) -> None:
    content: dict[str, Any] = {label: profile_cache.to_plain(work) for label, work in works_of(name, picture).items()}
    FOLDER.mkdir(exist_ok=True)
    text = json.dumps(content, separators=(",", ":"), sort_keys=True).encode()
    (FOLDER / f"{name}.json.gz").write_bytes(gzip.compress(text, mtime=0))


def main() -> None:
    from PIL import Image

    with tempfile.TemporaryDirectory() as folder:
        picture = Path(folder) / "picture.png"
        Image.new("RGB", (1024, 1024)).save(picture)
        for name in sys.argv[1:] or pipelines():
            write(name, picture)
            print(name, flush=True)


if __name__ == "__main__":
    main()
