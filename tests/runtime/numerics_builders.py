"""Whole runs of tiny pipelines with some `numerics`, and what they left to compare. Imports torch in functions."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import spec_builders

from framework.graph import build_graph
from framework.runtime.events import EventBus, Note
from framework.runtime.run import execute
from framework.spec import NumericsSpec, PipelineSpec, RequestSpec

MODES = ("resident", "component-offload", "layerwise-offload")


@dataclass(frozen=True)
class Made:
    """Frames of each request on the host, the lines that were said, and copies of denoisers' layers to the device."""

    frames: list[Any]
    notes: list[str]
    num_copies: int


def two_requests(**changes: Any) -> tuple[RequestSpec, RequestSpec]:
    """The same request twice, of which the same is wanted."""
    first = spec_builders.request(**{"num_frames": 1, "num_inference_steps": 4, **changes})
    return first, first


def make(
    spec: PipelineSpec, numerics: NumericsSpec, *requests: RequestSpec, mode: str = "resident", device: str = "sim"
) -> Made:
    from framework.platforms.sim.backend import install
    from framework.platforms.sim.world import World, start

    install()
    world = start(World())
    modes = dict.fromkeys(spec.components, mode)
    run = spec_builders.run_spec(spec, *requests, modes=modes, numerics=numerics, device=device)
    recorder = spec_builders.Recorder()
    result = execute(run, build_graph(spec), EventBus(recorder), keep=("frames",))
    copies = [move for move in world.moves if move.layer and str(move.component).startswith("transformer")]
    frames = [request.values["frames"].data.cpu() for request in result.requests]  # type: ignore[union-attr]
    return Made(frames, [note.text for note in recorder.of(Note)], len(copies))


def wan(tiny_folder: Callable[[str], Path], name: str = "wan21") -> PipelineSpec:
    return spec_builders.pipeline(name, tiny_folder)
