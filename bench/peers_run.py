"""One pipeline in one setting on one simulated machine: ours, or diffusers' and accelerate's own. Imports torch.

The second of two requests with different prompts is measured, so that nobody pays for learning the order of layers.
"""

import gc
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import torch
from torch import nn

from bench.peers_models import Model
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

PROMPTS = ("a cat", "two dogs")
STEPS = 3
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
        """Sum up; steps beyond those that were made take as long as those after the first."""
        self.world.synchronize()
        moved: Counter[str] = Counter()
        for move in self.world.moves[self.first_move :]:
            moved[move.direction] += move.size_bytes
        step_s = (self.steps_at[-1] - self.steps_at[0]) / (len(self.steps_at) - 1)
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


def resident(pipeline: Any) -> None:
    pipeline.to("sim")


def model_offload(pipeline: Any) -> None:
    pipeline.enable_model_cpu_offload(device="sim")


def sequential_offload(pipeline: Any) -> None:
    pipeline.enable_sequential_cpu_offload(device="sim")


def group_offload(offload_type: str, **options: Any) -> Callable[[Any], None]:
    """All components, one block a group where groups are blocks."""

    def enable(pipeline: Any) -> None:
        blocks = {"num_blocks_per_group": 1} if offload_type == "block_level" else {}
        where = {"onload_device": torch.device("sim"), "offload_device": torch.device("cpu")}
        pipeline.enable_group_offload(**where, offload_type=offload_type, **blocks, **options)

    return enable


def accelerate_half(pipeline: Any) -> None:
    """accelerate's device map: every second layer of the denoiser stays, everything else comes and goes by itself."""
    from accelerate import cpu_offload, dispatch_model

    for name, part in pipeline.components.items():
        if not isinstance(part, nn.Module):
            continue
        if name not in ("transformer", "unet"):
            cpu_offload(part, torch.device("sim"))
            continue
        lists = [(child, list(blocks)) for child, blocks in part.named_children() if isinstance(blocks, nn.ModuleList)]
        places = {f"{stack}.{i}": "cpu" if i % 2 else "sim" for stack, blocks in lists for i in range(len(blocks))}
        others = [child for child, _ in part.named_children() if child not in dict(lists)]
        own = [child for child, _ in part.named_parameters(recurse=False)]
        places |= dict.fromkeys([*others, *own], "sim")
        dispatch_model(part, places, main_device="sim", offload_buffers=True)


STREAM: Mapping[str, Any] = {"use_stream": True}
RECORD: Mapping[str, Any] = {"use_stream": True, "record_stream": True, "non_blocking": True}
PEERS: Mapping[str, Callable[[Any], None]] = {
    "diffusers resident": resident,
    "diffusers model offload": model_offload,
    "diffusers sequential offload": sequential_offload,
    "diffusers group offload, blocks": group_offload("block_level"),
    "diffusers group offload, blocks, stream": group_offload("block_level", **STREAM),
    "diffusers group offload, blocks, stream, record_stream": group_offload("block_level", **RECORD),
    "diffusers group offload, leaves": group_offload("leaf_level"),
    "diffusers group offload, leaves, stream": group_offload("leaf_level", **STREAM),
    "diffusers group offload, leaves, stream, record_stream": group_offload("leaf_level", **RECORD),
    "accelerate, half of the layers resident": accelerate_half,
}


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
            PEERS[setting](pipeline)
            for prompt in PROMPTS:
                watch.begin()
                output = call(pipeline, model, prompt, callback_on_step_end=stepped)
                made = output.cpu()
        return watch.row(setting, model), made
    except torch.OutOfMemoryError:
        return Row(setting, why=DOES_NOT_FIT), None


def call(pipeline: Any, model: Model, prompt: str, **more: Any) -> torch.Tensor:
    """Call diffusers' pipeline; returns its pictures as ours are: channels last."""
    generator = torch.Generator().manual_seed(0)
    output = pipeline(
        prompt=prompt, num_inference_steps=STEPS, generator=generator, output_type="pt", **model.call, **more
    )
    frames: torch.Tensor = output.frames if hasattr(output, "frames") else output.images
    return frames.movedim(-3, -1)


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
    requests = tuple(replace(spec.requests[0], prompt=prompt, num_inference_steps=STEPS) for prompt in PROMPTS)
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
        elif isinstance(event, RequestFinished):
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
