"""What the residency resolver reads: single settings with their origin, kept apart by layer. No torch."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from framework.errors import Origin
from framework.spec import EMPTY


@dataclass(frozen=True, slots=True)
class Entry:
    """One setting as written. `key` is dotted (`component_residency.vae`, `layerwise.dit.prefetch`,
    `dit_cpu_offload`); YAML maps are flattened to one entry per leaf, text and lists stay whole; null never appears."""

    key: str
    value: Any
    origin: Origin


@dataclass(frozen=True, slots=True, kw_only=True)
class Sources:
    """The layers of KEYS, highest first. Keys inside each layer:

    user: `component_residency[.SELECTOR]`, `layerwise.SELECTOR.KNOB`, every legacy key, and command-line overrides of
    `residency.modes.*`, `residency.layerwise.*`, `pipeline.defaults.residency.*`, `pipeline.defaults.layerwise.*`;
    preset: `residency.modes.SELECTOR`, `residency.layerwise.SELECTOR.KNOB`;
    pipeline: `pipeline.defaults.residency.SELECTOR`, `pipeline.defaults.layerwise.SELECTOR.KNOB`.
    """

    user: tuple[Entry, ...] = ()
    preset: tuple[Entry, ...] = ()
    pipeline: tuple[Entry, ...] = ()
    performance_mode: Entry | None = None
    preset_name: str = "none"
    preset_where: str = ""
    hints: Mapping[str, Any] = field(default_factory=lambda: EMPTY)


@dataclass(frozen=True, slots=True, kw_only=True)
class ComponentFacts:
    """What the resolver may know of a component without loading it.

    `group` is None for a helper in no group; `stack_lengths` the layer count of each block list, None where unknown,
    `()` for a component that has no block list at all; `quantized` names a quantisation backend or is None.
    """

    group: str | None
    stack_lengths: tuple[int, ...] | None = None
    quantized: str | None = None
    used: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class MachineFacts:
    """`kind` is cpu, cuda, mps or sim; memory in bytes of the least-free device; None where unknown."""

    kind: str
    total_bytes: int | None = None
    available_bytes: int | None = None
    num_devices: int = 1
