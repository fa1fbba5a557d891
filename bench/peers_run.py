"""One pipeline in one setting on one simulated machine: ours, or diffusers' and accelerate's own. Imports torch.

The second of two requests with different prompts is measured, so that nobody pays for learning the order of layers.
"""

import gc
from collections import Counter
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import torch

from bench.peers_models import Model
from bench.peers_settings import PEERS, STEADY, STEPS, call
from framework.compose import compose
from framework.errors import FrameworkError, PlanError
from framework.graph import Graph, build_graph
from framework.platforms.hardware import HardwareProfile
from framework.platforms.sim import SimCompat, World, current, start
from framework.runtime.deciding import decide
from framework.runtime.events import Event, EventBus, MemoryMeasured, RequestFinished, RequestStarted, StepDone
from framework.runtime.run import execute
from framework.spec import RunSpec
from framework.values import Frames

PROMPTS = {"a cat": 1, "two dogs": STEPS}
"""Steps by prompt; the first request is for learning the order of layers."""
DOES_NOT_FIT = "does not fit"
Picture = torch.Tensor | None


@dataclass(slots=True)
class Row:
    """One setting: virtual seconds of a request of as many steps as it really has, and what it took of memory and bus.

    `weights_d2h_bytes` is what came back beside the pictures; `copies` the most often that one streamed layer was
    copied in one call. `why`: the reason why there are no figures.
    """

    setting: str
    seconds: float | None = None
    step_s: float | None = None
    peak_bytes: int | None = None
    pinned_bytes: int | None = None
    h2d_bytes: int | None = None
    d2h_bytes: int | None = None
    weights_d2h_bytes: int | None = None
    copies: float | None = None
    same_picture: bool | None = None
    why: str | None = None


@dataclass
class Watch:
    """Looks at the simulated machine while the second request runs."""

    world: World
    steps_at: list[float] = field(default_factory=list)
    first_move: int = 0
    began: float = 0.0

    def now(self) -> float:
        return max(self.world.host_s, self.world.devices[0].compute_free_s)

    def begin(self) -> None:
        self.world.synchronize()
        self.began, self.first_move = self.now(), len(self.world.moves)
        self.world.devices[0].ledger.reset_peak()
        self.steps_at.clear()

    def row(self, setting: str, model: Model) -> Row:
        """Sum up; steps that were not made take as long as the steady one."""
        self.world.synchronize()
        moved: Counter[str] = Counter()
        for move in self.world.moves[self.first_move :]:
            moved[move.direction] += move.size_bytes
        step_s = self.steps_at[STEADY] - self.steps_at[STEADY - 1]
        return Row(
            setting,
            seconds=self.now() - self.began + (model.steps - len(self.steps_at)) * step_s,
            step_s=step_s,
            peak_bytes=self.world.devices[0].ledger.peak_bytes,
            pinned_bytes=self.world.pinned.peak_bytes,
            h2d_bytes=moved["h2d"],
            d2h_bytes=moved["d2h"],
        )


# diffusers and accelerate


def run_peer(
    model: Model, profile: HardwareProfile, setting: str, pipeline: Any, capacity_bytes: int | None = None
) -> tuple[Row, Picture]:
    """Run a fresh `pipeline` in one of `PEERS`, with other memory than the machine's where `capacity_bytes` says so."""
    watch = Watch(start(World(profile, capacity_bytes=capacity_bytes)))

    def stepped(pipe: Any, step: int, timestep: Any, values: dict[str, Any]) -> dict[str, Any]:
        watch.steps_at.append(watch.now())
        return values

    try:
        with torch.no_grad(), SimCompat():
            PEERS[setting](pipeline, torch.device("sim"))
            for prompt, steps in PROMPTS.items():
                watch.begin()
                output = call(pipeline, model, prompt, steps, callback_on_step_end=stepped)
                made = output.cpu()
        return watch.row(setting, model), made
    except torch.OutOfMemoryError:
        return Row(setting, why=DOES_NOT_FIT), None
    except RuntimeError as error:  # not every peer can place every pipeline
        return Row(setting, why=f"fails: {str(error).splitlines()[0]}"), None


# ours

OURS: Mapping[str, tuple[str, ...]] = {
    "ours, resident": ("component_residency.all=resident",),
    "ours, component-offload": ("component_residency.all=component-offload",),
    "ours, layerwise, no prefetch": (
        "component_residency.all=layerwise-offload",
        "layerwise.all.resident=0",
        "layerwise.all.prefetch=0",
    ),
    "ours, layerwise": ("component_residency.all=layerwise-offload", "layerwise.all.resident=0"),
    "ours, layerwise, half resident": ("component_residency.all=layerwise-offload", "layerwise.all.resident=50%"),
    "ours, auto": ("residency=auto",),
}


def run_ours(model: Model, profile: HardwareProfile, setting: str, folder: Path) -> tuple[Row, Picture]:
    """Run the packaged config of `model` over `folder` as a user would."""
    start(World(profile))
    try:
        spec, graph = _decided(model, profile, folder, OURS[setting])
        return _measure(model, setting, spec, graph)
    except FrameworkError as error:
        if not isinstance(error, PlanError) and "out of memory" not in str(error):
            raise
        return Row(setting, why=DOES_NOT_FIT), None
    finally:
        gc.collect()


def _decided(model: Model, profile: HardwareProfile, folder: Path, words: tuple[str, ...]) -> tuple[RunSpec, Graph]:
    """Compose, and plan for as many steps as the request really has."""
    sizes = [f"request.{name}={model.call[name]}" for name in ("height", "width", "num_frames") if name in model.call]
    texts = [f"{name}={model.call[name]}" for name in ("negative_prompt",) if name in model.call]
    numbers = ("guidance_scale", "max_sequence_length")
    sizes += [f"request.{name}={model.call[name]}" for name in numbers if name in model.call]
    spec = compose(
        [
            f"pipeline={model.config}",
            f"pipeline.model.source={folder}",
            "pipeline.model.dtype=float32",
            "device=sim",
            "seed=0",
            "recover=null",
            f"request.num_inference_steps={model.steps}",
            *sizes,
            *texts,
            *model.words,
            *words,
        ]
    )
    spec = replace(spec, config={**spec.config, "hardware": asdict(profile)})
    graph = build_graph(spec.pipeline)
    chosen = decide(spec, graph, EventBus()) if spec.planned else spec
    requests = tuple(replace(spec.requests[0], prompt=p, num_inference_steps=n) for p, n in PROMPTS.items())
    return replace(chosen, requests=requests, planned=False), graph


def _measure(model: Model, setting: str, spec: RunSpec, graph: Graph) -> tuple[Row, Picture]:
    watches: list[Watch] = []
    rows: list[Row] = []
    measured: list[MemoryMeasured] = []

    def hear(event: Event) -> None:
        if isinstance(event, RequestStarted):
            watches.append(Watch(current()))
            watches[-1].begin()
        elif isinstance(event, StepDone):
            watches[-1].steps_at.append(watches[-1].now())
        elif isinstance(event, MemoryMeasured):
            measured.append(event)
        elif isinstance(event, RequestFinished) and event.index == len(PROMPTS) - 1:
            rows.append(watches[-1].row(setting, model))

    result = execute(spec, graph, EventBus(hear), keep=("frames",))
    row = replace(
        rows[-1],
        peak_bytes=measured[-1].device_peak_bytes,
        weights_d2h_bytes=sum(by.get("d2h", 0) for by in measured[-1].moved_bytes.values()),
        copies=_copies(watches[-1], model),
    )
    frames = result.requests[-1].values["frames"]
    assert isinstance(frames, Frames)
    return row, frames.data


def _copies(watch: Watch, model: Model) -> float:
    """Return the most copies of one streamed layer of the denoiser for each of its calls."""
    moves = watch.world.moves[watch.first_move :]
    layers = Counter(
        move.layer
        for move in moves
        if move.component == model.denoiser and move.layer is not None and move.direction == "h2d"
    )
    return max(layers.values(), default=0) / (STEPS * model.passes)
