"""One pipeline in one setting on a real (or rehearsed) device: seconds of a step, peaks, bytes, picture. Imports torch.

The engine is driven without Hydra: the packaged YAML is read as it is and placements are made here.
"""

import gc
import time
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
import yaml

from bench.peers_models import Model
from bench.peers_settings import PEERS, call
from framework.compose.build import build_pipeline
from framework.errors import FrameworkError
from framework.graph import build_graph
from framework.paths import CONF
from framework.platforms import Platform
from framework.platforms.hardware import HardwareProfile
from framework.runtime.events import Event, EventBus, MemoryMeasured, PlanChecked, RequestStarted, StepDone
from framework.runtime.run import execute
from framework.spec import Bound, BudgetSpec, Knob, NumericsSpec, OutputSpec, Placement, RequestSpec, RunSpec
from framework.values import Frames

STEPS = 4
PROMPTS = ("a cat", "two dogs")
"""The first request is for learning the order of layers, and for what libraries choose once."""
SCRATCH = Path("/proc/self")
Knobs = tuple[str, str | None, str | None]
OURS: Mapping[str, Knobs] = {
    "ours, resident": ("resident", None, None),
    "ours, component-offload": ("component-offload", None, None),
    "ours, layerwise": ("layerwise-offload", "1", "0"),
    "ours, layerwise, half resident": ("layerwise-offload", "1", "50%"),
    "ours, auto": ("auto", None, None),
}
"""Mode, prefetch and resident of every component."""


@dataclass
class Device:
    """The device that is measured, its profile for the planner, and its clock."""

    platform: Platform
    profile: HardwareProfile

    @property
    def simulated(self) -> bool:
        return self.platform.kind == "sim"

    def now(self) -> float:
        """Return the seconds at which everything put on the device is done; the host waits for it."""
        self.platform.synchronize()
        return float(getattr(self.platform, "seconds", time.perf_counter)())

    def compatible(self) -> AbstractContextManager[Any]:
        """What code written for CUDA needs on a simulated device."""
        if not self.simulated:
            return nullcontext()
        from framework.platforms.sim import SimCompat

        return SimCompat()


@dataclass
class Watch:
    """Times one request: the host waits for the device after the first and the last step but one, only.

    The last one fetches nothing ahead.
    """

    device: Device
    began: float = 0.0
    first_s: float = 0.0
    last_s: float = 0.0
    steps: int = 0
    host_bytes: int = 0

    def begin(self) -> None:
        gc.collect()
        self.device.platform.reset_peak()
        _forget_host_peak()
        self.host_bytes, self.steps, self.began = _host_bytes("VmRSS"), 0, self.device.now()

    def step(self) -> None:
        self.steps += 1
        if self.steps == 1:
            self.first_s = self.device.now()
        elif self.steps == STEPS - 1:
            self.last_s = self.device.now()

    def row(self, setting: str) -> dict[str, Any]:
        """Sum up, with everything done."""
        seconds = self.device.now() - self.began
        figures = self.device.platform.memory()
        return {
            "setting": setting,
            "step_s": (self.last_s - self.first_s) / (STEPS - 2),
            "request_s": seconds,
            "device_peak_bytes": figures.peak_bytes,
            "host_bytes": self.host_bytes,
            "host_peak_bytes": _host_bytes("VmHWM"),
        }


def _host_bytes(name: str) -> int:
    """`VmRSS` is what the process has of the host's memory now, `VmHWM` its peak; 0 where the system does not tell."""
    try:
        lines = (SCRATCH / "status").read_text(encoding="ascii").splitlines()
    except OSError:
        return 0
    return next((int(line.split()[1]) * 1024 for line in lines if line.startswith(name)), 0)


def _forget_host_peak() -> None:
    try:
        (SCRATCH / "clear_refs").write_text("5", encoding="ascii")
    except OSError:
        return  # then the peak is the process's


def run_peer(device: Device, model: Model, setting: str, load: Callable[[], Any]) -> tuple[dict[str, Any], Any]:
    """Load a pipeline, place it as one of `PEERS`, and make two pictures; the second is measured and returned."""
    watch = Watch(device)

    def stepped(pipe: Any, step: int, timestep: Any, values: dict[str, Any]) -> dict[str, Any]:
        watch.step()
        return values

    pipeline = load()
    with torch.no_grad(), device.compatible():
        PEERS[setting](pipeline, device.platform.device)
        for prompt in PROMPTS:
            watch.begin()
            made = call(pipeline, model, prompt, STEPS, callback_on_step_end=stepped).float().cpu()
        row = watch.row(setting)
    return row, made


def run_ours(
    device: Device, model: Model, setting: str, folder: Path, knobs: Knobs, budget_bytes: int | None = None
) -> tuple[dict[str, Any], Any]:
    """The same with the engine. The row says what the plan expected, where there is one, and what was moved.

    `budget_bytes` is what the engine may use of the device.
    """
    watch, found = Watch(device), dict[str, Any]()

    def hear(event: Event) -> None:
        if isinstance(event, RequestStarted):
            watch.begin()
        elif isinstance(event, StepDone):
            watch.step()
        elif isinstance(event, MemoryMeasured):
            found["moved_bytes"] = {name: dict(by) for name, by in event.moved_bytes.items()}
            found["device_peak_bytes"] = event.device_peak_bytes
        elif isinstance(event, PlanChecked):
            found.setdefault("stages", {name: dict(stage) for name, stage in event.stages.items()})

    spec = run_spec(device, model, folder, knobs, budget_bytes)
    result = execute(spec, build_graph(spec.pipeline), EventBus(hear), keep=("frames",))
    row = {**watch.row(setting), **found}
    frames = result.requests[-1].values["frames"]
    assert isinstance(frames, Frames)
    made = frames.data
    del result
    gc.collect()
    device.platform.release_cache()
    return row, made


def run_spec(device: Device, model: Model, folder: Path, knobs: Knobs, budget_bytes: int | None) -> RunSpec:
    """Return a run of two requests of the packaged config of `model` over `folder`, without composing it."""
    data = yaml.safe_load((CONF / "pipeline" / f"{model.config}.yaml").read_text(encoding="utf-8"))
    dtype = "float32" if device.simulated else "bfloat16"
    data["model"] |= {"source": str(folder), "dtype": dtype, "variant": None}
    for part in data["components"].values():
        part.pop("dtype", None)  # one for all, as the plain calls have it
    pipeline = build_pipeline(data)
    said = {name: model.call[name] for name in ("height", "width", "num_frames") if name in model.call}
    said |= {name: model.call[name] for name in ("negative_prompt", "max_sequence_length") if name in model.call}
    guidance = model.call.get("true_cfg_scale", model.call.get("guidance_scale"))
    requests = [
        RequestSpec(prompt=prompt, seeds=(0,), num_inference_steps=STEPS, guidance_scale=guidance, **said)
        for prompt in PROMPTS
    ]
    mode, prefetch, resident = knobs
    placements = {
        name: Placement(
            component=name,
            group=part.group,
            mode=mode,
            prefetch=None if prefetch is None else Knob(prefetch),
            resident=None if resident is None else Knob(resident),
        )
        for name, part in pipeline.components.items()
    }
    return RunSpec(
        pipeline=pipeline,
        requests=tuple(requests),
        placements=placements,
        numerics=NumericsSpec(vae_tiling=False, vae_slicing=False, deterministic=True),
        output=OutputSpec(),
        device=str(device.platform.device),
        planned=mode == "auto",
        budget=BudgetSpec(device=None if budget_bytes is None else Bound(str(budget_bytes), budget_bytes)),
        recover=None,
        config={"hardware": asdict(device.profile)},
    )


def tried(run: Callable[[], tuple[dict[str, Any], Any]], setting: str) -> tuple[dict[str, Any], Any]:
    """Run; where memory runs out or a setting is refused, return a row that says why."""
    try:
        return run()
    except (torch.OutOfMemoryError, FrameworkError) as error:
        return {"setting": setting, "why": str(error).splitlines()[0]}, None
