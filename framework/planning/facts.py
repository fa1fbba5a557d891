"""What the parts of the planner hand to each other: frozen facts about weights, work and machines. No torch.

`inventory` fills `ComponentSizes`, `profile` fills `RunWork`, `timing` and `memory` turn both into a `Forecast`, and
`choose` picks the placements. All sizes are bytes, all times seconds, all arithmetic FLOP.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

EMPTY: Mapping[str, int] = MappingProxyType({})
NOTHING: Mapping[str, Any] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class LayerSize:
    """One layer of a stack: its weights at the run dtype, by tensor count and bytes by dtype.

    A layer without weights of its own has zero bytes: the streamer leaves it out, but it counts for the knobs.
    """

    size_bytes: int  # as the streamer packs it: 256-byte aligned views, ties once
    tensors: int
    by_dtype: Mapping[str, int] = field(default_factory=lambda: EMPTY)

    @property
    def weight_bytes(self) -> int:
        """Bytes of the weights alone, without the gaps of alignment."""
        return sum(self.by_dtype.values())


@dataclass(frozen=True, slots=True)
class StackSizes:
    """One block list: `path` as in the YAML's `layers`, for example `blocks` or `encoder.block`."""

    path: str
    layers: tuple[LayerSize, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ComponentSizes:
    """Bytes of one component before anything is read. `source` says how they are known.

    `size_bytes` None: unknown, never zero and never too big. Layers, `leftover_bytes`, `table_bytes` and `buffer_bytes`
    have no byte in common. `leftover_bytes` are weights outside the stacks and `buffer_bytes` registered buffers, both
    as the engine packs them (`planning.packing`); `table_bytes` gather-only tables that stay on the host where layers
    are streamed, `lazy_bytes` tensors made on first use and kept. `file_dtype` differs from `dtype` when loading casts.
    `resident_bytes` is what all weights take on the device tensor by tensor, `whole_bytes` in chunks; None: their sum.
    `file_bytes` is what loading reads (None: unknown); `config` is the component's own, as far as it is known.
    """

    name: str
    group: str | None
    class_name: str | None
    dtype: str | None
    file_dtype: str | None
    size_bytes: int | None
    stacks: tuple[StackSizes, ...] = ()
    leftover_bytes: int = 0
    leftover_tensors: int = 0
    table_bytes: int = 0
    buffer_bytes: int = 0
    lazy_bytes: int = 0
    resident_bytes: int | None = None
    whole_bytes: int | None = None
    file_bytes: int | None = None
    config: Mapping[str, Any] = field(default_factory=lambda: EMPTY)
    ties: tuple[tuple[str, str], ...] = ()
    source: str = "unknown"  # headers, hub:REPO, sheet:REPO, files, unknown
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Kernel:
    """`count` kernels alike: `kind` is matmul, attention, conv, or empty where only bytes are moved."""

    kind: str
    flops: float
    size_bytes: int  # touched by one of them
    count: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Work:
    """Work of one stretch of compute: FLOP by kind of kernel, bytes touched, kernels launched, peak of activations.

    `activation_bytes` is the most that is alive at once in it beyond what was alive before it began. `kernels`, where
    they are known one by one, sum up to the rest: each is bound by arithmetic or by memory on its own. `h2d_bytes` and
    `d2h_bytes` cross the bus beside the weights (token ids, latents, pictures), the former in `h2d_copies`; the host
    stops for the device `waits` times. Copies are launches, waits are not.
    """

    matmul_flops: float = 0.0
    attention_flops: float = 0.0
    conv_flops: float = 0.0
    touched_bytes: int = 0
    launches: int = 0
    activation_bytes: int = 0
    dtype: str = "bfloat16"
    kernels: tuple[Kernel, ...] = ()
    h2d_bytes: int = 0
    d2h_bytes: int = 0
    waits: int = 0
    h2d_copies: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class CallWork:
    """One entry point of a component at one set of input shapes.

    `layers` are `(stack, index)` in the order they run; `layer_work` has one entry for each place of that order and
    `before`, `after` the work around them. `activation_bytes` is the peak of the whole call above `live_bytes`, what
    the caller holds meanwhile (embeddings, latents, scheduler state).
    """

    component: str
    entry_point: str  # forward, decode, encode, generate, get_image_features
    layers: tuple[tuple[str, int], ...] = ()
    layer_work: tuple[Work, ...] = ()
    before: Work = field(default_factory=Work)
    after: Work = field(default_factory=Work)
    activation_bytes: int = 0
    live_bytes: int = 0
    reads_outside: tuple[str, ...] = ()  # weights of a layer read outside the layer's own call


@dataclass(frozen=True, slots=True, kw_only=True)
class CallCount:
    """`count` calls alike, one after the other; `steps` is the interval of denoising steps they belong to, or None."""

    call: CallWork
    count: int
    steps: tuple[int, int] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class StageWork:
    """A stage's calls in order, and the work of its own code around them (scheduler steps, guidance, pictures).

    `extra_bytes` is the most that is alive while no component runs: outputs of earlier stages, casts and copies. So
    the stage's peak without weights is the largest of it and of `live_bytes + activation_bytes` of its calls.
    `entry_bytes` is the part of it before the first call, `later_bytes` after that, `end_bytes` after the
    last use has ended; None: not told apart.
    """

    stage: str
    calls: tuple[CallCount, ...]
    extra_bytes: int = 0
    entry_bytes: int | None = None
    later_bytes: int | None = None
    end_bytes: int | None = None
    outside: Work = field(default_factory=Work)


@dataclass(frozen=True, slots=True, kw_only=True)
class RunWork:
    """All stages of one request in the order they run; `exact` is False where a part was scaled or estimated."""

    stages: tuple[StageWork, ...]
    exact: bool = True
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Budgets:
    """What may be used at most, in bytes; None: what the machine has."""

    device: int | None = None
    pinned: int | None = None
    host: int | None = None
    disk: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """Where one component lives: mode, knobs in whole layers per stack; `tier`: device, pinned, pageable, mapped."""

    component: str
    mode: str
    prefetch: tuple[int, ...] = ()
    resident: tuple[int, ...] = ()
    policy: str = "strided"
    lifetime: str = "use"
    tier: str = "pinned"
    reason: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class StageForecast:
    """One stage, predicted. `peak_parts` names what the peak is made of; `bound_by` is compute, bus, host or disk."""

    stage: str
    seconds: float
    compute_s: float
    copy_s: float
    stall_s: float
    peak_bytes: int
    peak_parts: Mapping[str, int]
    moved_bytes: int
    bound_by: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Forecast:
    """A whole run, predicted, load included. `host_bytes` counts anonymous memory, `pinned_bytes` within it."""

    stages: tuple[StageForecast, ...]
    load_s: float
    seconds: float
    peak_bytes: int
    pinned_bytes: int
    host_bytes: int
    disk_bytes: int
    unknown: tuple[str, ...] = ()  # components whose size nobody knows
