"""The frozen description of one run; nothing after this line knows OmegaConf or Hydra. No torch.

`framework.compose` builds a `RunSpec` from YAML and the command line; graph, plan, load and run only read it.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any

from framework.errors import Origin
from framework.step_caches import StepCache

EMPTY: Mapping[str, Any] = MappingProxyType({})
MAX_SIM_DEVICES = 64  # torch knows devices by a small number


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelSpec:
    """Where the weights are: a hub name, a folder, or `embedded:NAME` for a model shipped with the program."""

    source: str
    revision: str | None = None
    variant: str | None = None
    dtype: str | None = None  # None: the checkpoint's own
    trust_remote_code: bool = False
    allow_pickle: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class ComponentSpec:
    """One entry of the pipeline's `model_index.json`; `layers` are dotted paths of its block lists."""

    name: str
    group: str | None = None
    dtype: str | None = None
    layers: tuple[str, ...] = ()
    num_layers: tuple[int, ...] | None = None  # one length for each entry of `layers`
    source: str | None = None
    optional: bool = False
    device: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ComponentUse:
    """One interval in which a stage needs a component; see the lifecycle in `framework.runtime.residency`."""

    component: str
    phase: str | None = None
    start_at_stage_entry: bool = True
    allow_prefetch: bool = True
    memory_intensive: bool = False
    preferred_ready_after_request: bool = False
    keep_ready_after_warmup: bool = False
    target_dtype: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class StageSpec:
    """One node of the graph. `component_uses` None means the stage class's own."""

    name: str
    kind: str
    after: tuple[str, ...] = ()
    inputs: Mapping[str, str] = field(default_factory=lambda: EMPTY)  # name inside the stage -> name of the value
    outputs: Mapping[str, str] = field(default_factory=lambda: EMPTY)
    component_uses: tuple[ComponentUse, ...] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SchedulerSpec:
    """Overrides of the checkpoint's own scheduler; `class_name` is a scheduler class of diffusers."""

    class_name: str | None = None
    options: Mapping[str, Any] = field(default_factory=lambda: EMPTY)
    flow_shift: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PipelineSpec:
    """A pipeline as a stage graph over named components."""

    name: str
    family: str | None
    backend: str
    model: ModelSpec
    components: Mapping[str, ComponentSpec]
    stages: Mapping[str, StageSpec]
    scheduler: SchedulerSpec = field(default_factory=SchedulerSpec)
    args: Mapping[str, Any] = field(default_factory=lambda: EMPTY)
    hints: Mapping[str, Any] = field(default_factory=lambda: EMPTY)


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestSpec:
    """One prompt with its sampling values, after the pipeline's defaults; None: the stage's own default.

    `seeds` is None when the seed is still to be drawn; else one seed for each output.
    """

    prompt: str
    negative_prompt: str | None = None
    seeds: tuple[int, ...] | None = None
    height: int | None = None
    width: int | None = None
    num_frames: int | None = None
    num_inference_steps: int | None = None
    guidance_scale: float | None = None
    guidance_scale_2: float | None = None
    max_sequence_length: int | None = None
    num_outputs: int = 1
    fps: int | None = None
    image: str | None = None
    video: str | None = None
    mask: str | None = None
    strength: float | None = None
    generator_device: str = "cpu"
    lora_scales: tuple[float, ...] | None = None  # one for each adapter of the run; None: the adapters' own


@dataclass(frozen=True, slots=True)
class Knob:
    """A layerwise amount as written and, where the stack lengths are known, in whole layers per stack.

    `written` is the user's text (`1`, `0.25`, `50%`, `all`, `6GiB`), or a plan's counts (`2+5`: one for each stack);
    `layers` one count per stack, or None while the lengths are unknown or the amount is in bytes; `size_bytes` is set
    for an amount in bytes.
    """

    written: str
    layers: tuple[int, ...] | None = None
    size_bytes: int | None = None

    @property
    def is_per_stack(self) -> bool:
        return "+" in self.written


@dataclass(frozen=True, slots=True)
class Reason:
    """One step of a reason trail: which value of `subject` was considered, from where, and whether it won."""

    subject: str  # mode, prefetch, resident, policy or lifetime
    value: str
    origin: Origin
    key: str
    won: bool
    note: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Placement:
    """Where one component's weights live and why; knobs are None unless the mode is layerwise.

    Mode `auto` is left to the planner, and so is a knob of None then. `tier` is where the host keeps them: pinned
    (None, as far as the budgets go), pageable or mapped.
    """

    component: str
    group: str | None
    mode: str
    prefetch: Knob | None = None
    resident: Knob | None = None
    policy: str | None = None
    lifetime: str | None = None
    tier: str | None = None
    reasons: tuple[Reason, ...] = ()


@dataclass(frozen=True, slots=True)
class NextBest:
    """A placement that holds less device memory than the planned one, by so many bytes in a use and between uses.

    `seconds` is what it adds to the run as foretold.
    """

    placement: Placement
    seconds: float
    used_bytes: int
    idle_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class NumericsSpec:
    """Everything that may change the picture; part of a result's identity. `vae_tiling` is auto, true or false.

    `attention` is a name of `framework.attention_backends`, `compile` off or blocks. `quantize` maps a component to its
    `framework.quantization.Quantization`.
    """

    vae_tiling: str | bool = "auto"
    vae_slicing: str | bool = "auto"
    attention: str = "sdpa"
    compile: str = "off"
    step_cache: StepCache | None = None
    quantize: Mapping[str, Any] = field(default_factory=lambda: EMPTY)
    deterministic: bool = False


@dataclass(frozen=True, slots=True)
class Bound:
    """An upper bound: `written` is the user's text; some bytes, a share of the whole, or what is free less some bytes.

    What is free is looked at when the run starts, before anything is loaded.
    """

    written: str
    size_bytes: int | None = None
    share: float | None = None  # 0 to 1
    below_free_bytes: int = 0

    def of(self, total_bytes: int, free_bytes: int) -> int:
        """Return the bound in bytes where the whole is `total_bytes` and `free_bytes` of it are free."""
        if self.size_bytes is not None:
            return self.size_bytes
        if self.share is not None:
            return int(self.share * total_bytes)
        return max(0, free_bytes - self.below_free_bytes)


@dataclass(frozen=True, slots=True, kw_only=True)
class BudgetSpec:
    """What a run may use at most; None: what the machine has.

    `device`: memory of tensors there. `pinned` and `host`: host memory of weights, page-locked and in all; pages of
    a mapped checkpoint file are the kernel's and count for neither. `disk`: what is kept between runs.
    """

    device: Bound | None = None
    pinned: Bound | None = None
    host: Bound | None = None
    disk: Bound | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ReserveSpec:
    """What the planner leaves alone of the device; None: its own figure. Shares are of the device's memory.

    `context` is the driver's, `workspace` that of libraries, `desktop` what the screen holds, `allocator` what an
    allocator cannot hand out in one piece.
    """

    context: Bound | None = None
    workspace: Bound | None = None
    desktop: Bound | None = None
    allocator: Bound | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckpointSpec:
    """What a run keeps to be continued from. `stages` is auto, all, off, or names of stages whose results are kept.

    auto: latents before they are decoded and, with `every_steps`, what their loop reads. `every_steps`: the state of a
    loop after every so many steps.
    """

    stages: str | tuple[str, ...] = "auto"
    every_steps: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RecoverSpec:
    """What running out of device memory may change in one run: at most `max_notches` steps to a smaller placement.

    `allow_numerics`: in the end, also what changes the picture.
    """

    max_notches: int = 3
    allow_numerics: bool = False


@dataclass(frozen=True, slots=True)
class LoraSpec:
    """One adapter, merged into the weights of `components`; empty: those that its file names."""

    source: Path
    scale: float = 1.0
    components: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class OutputSpec:
    """Where and how results are written; `name` is a folder name inside `root`, None for a dated one."""

    root: Path = Path("outputs")
    name: str | None = None
    image_format: str = "png"
    video_codec: str = "h264"
    quality: int | None = None  # None: the codec's own default
    sheet: bool = True
    report: bool = True
    trace: bool = False
    keep_artifacts: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class RunSpec:
    """Everything one run needs, decided. `config` is the composed plain mapping, as stored in the record.

    `provenance` maps dotted keys that somebody set to their origin; `notes` are the one-line messages that composing
    produced (foldings, fallbacks, warnings), for the log and the terminal. `planned`: placements of mode `auto` are
    still to be decided, to beat those of `presets`; `plan` is the plan that decided them, as the record has it, and
    `next_best` what it would take with less memory, the cheapest first.
    """

    pipeline: PipelineSpec
    requests: tuple[RequestSpec, ...]
    placements: Mapping[str, Placement]
    numerics: NumericsSpec
    output: OutputSpec
    device: str = "auto"
    loras: tuple[LoraSpec, ...] = ()
    budget: BudgetSpec = field(default_factory=BudgetSpec)
    reserve: ReserveSpec = field(default_factory=ReserveSpec)
    planned: bool = False
    presets: Mapping[str, Mapping[str, Placement]] = field(default_factory=lambda: EMPTY)
    plan: Mapping[str, Any] | None = None
    next_best: tuple[NextBest, ...] = ()
    checkpoint: CheckpointSpec = field(default_factory=CheckpointSpec)
    recover: RecoverSpec | None = field(default_factory=RecoverSpec)
    warmup: bool = False  # run the first request once before, and keep nothing of it but weights where they are
    prompt_cache_memory: bool = True
    prompt_cache_disk: bool = False
    config: Mapping[str, Any] = field(default_factory=lambda: EMPTY)
    provenance: Mapping[str, Origin] = field(default_factory=lambda: EMPTY)
    notes: tuple[str, ...] = ()
