"""Every bench by name: its question and the arguments of a full and of a quick run. No torch."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

from bench import tables

Table: TypeAlias = Callable[[Any], list[str]]


@dataclass(frozen=True, slots=True)
class Bench:
    """One question. `full` and `quick` are arguments beside `--json`; `table` renders its JSON as Markdown lines.

    `simulated`: its times are those of the simulated device. `kept=False`: no result belongs into the repository.
    """

    question: str
    table: Table
    full: tuple[str, ...] = ()
    quick: tuple[str, ...] = ()
    simulated: bool = False
    kept: bool = True


BENCHES: Mapping[str, Bench] = {
    "hook_overhead": Bench(
        "What does the host pay for one streamed layer, beside diffusers and accelerate?",
        tables.hook_overhead,
        quick=("--rounds", "1"),
    ),
    "overhead": Bench(
        "What does the framework cost over a plain diffusers script?", tables.overhead, quick=("--pairs", "1")
    ),
    "peers_sim": Bench(
        "How fast is it beside diffusers' and accelerate's own offloading, and in how much memory?",
        tables.peers_sim,
        quick=("--quick",),
        simulated=True,
    ),
    "overlap_sim": Bench(
        "How well do copies hide behind compute?", tables.overlap_sim, quick=("--quick",), simulated=True
    ),
    "scaling": Bench("How does the engine's own cost grow?", tables.scaling, quick=("--quick",)),
    "load_memory": Bench(
        "What does loading cost in host memory?",
        tables.load_memory,
        quick=("--layers", "1", "--only", "resident", "layerwise-offload, pinned"),
    ),
    "plan_vs_published": Bench(
        "How far are forecasts from what others have published?", tables.plan_vs_published, quick=("--quick",)
    ),
    "sweep": Bench("What do warm workers save in a sweep?", tables.sweep, quick=("--jobs", "2", "--runs", "1")),
    "gpu": Bench(
        "What does a real GPU say?",
        tables.gpu,
        full=("--device", "sim", "--quick"),
        quick=("--device", "sim", "--quick"),
        simulated=True,
        kept=False,
    ),
    "trace_overhead": Bench("What does tracing cost?", tables.trace_overhead, quick=("--rounds", "1")),
    "events": Bench("What does an event cost?", tables.events),
}


def command_of(name: str, quick: bool = False) -> str:
    """Return the command that answers a bench's question, or tries whether it could."""
    words = BENCHES[name].quick if quick else BENCHES[name].full
    return " ".join(["python", "-m", f"bench.{name}", *(_quoted(word) for word in words)])


def _quoted(word: str) -> str:
    return f"'{word}'" if " " in word else word
