"""Many requests of two pipelines on one simulated machine: plans, sizes, adapters and troubles mixed. Imports torch.

Everything is drawn from one seed, so that a run that fails can be repeated.
"""

import gc
import os
import random
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import cycle
from pathlib import Path
from typing import Any

import spec_builders
import torch
from equality_cases import Plan
from equality_rig import OTHER_SIZE, Rig, Subject, placements
from safetensors.torch import save_file
from torch import Tensor

from framework.errors import FrameworkError
from framework.platforms.sim.world import World
from framework.runtime.events import Event, EventBus, UseStarted
from framework.runtime.interrupts import Interrupts
from framework.runtime.placing import place_all
from framework.runtime.scheduler import run_requests
from framework.runtime.weight_edits import WeightEdits
from framework.spec import LoraSpec, RunSpec

PLANS = (
    Plan("layerwise-offload", "1", "1"),
    Plan("component-offload"),
    Plan("dit-layerwise", "2", "50%", "leading", lifetime="retained"),
    Plan("resident"),
    Plan("layerwise-offload", "all", "0"),
    Plan("dit-whole", "0", "16KiB"),
)
TIERS = {"wan22": "pinned", "flux": "scarce"}
TROUBLES = ("copy", "memory", "not finite", "raises", "interrupt", "asked to stop")
LORA_SCALES = (None, 0.5, 0.0)


@dataclass(frozen=True, slots=True)
class Wanted:
    """What decides the picture of a request."""

    pipeline: str
    seed: int
    other_size: bool
    lora_scale: float | None  # None: a run without adapters


@dataclass(frozen=True, slots=True)
class Draw:
    """One request, the plan it runs under and what is to go wrong; `at` says how early."""

    wanted: Wanted
    plan: Plan
    trouble: str | None
    at: int


def draws(number: int, num_plans: int, num_seeds: int, num_scales: int, share_of_other_size: float) -> Iterator[Draw]:
    """Draw `number` requests, the same ones every time; each trouble comes up as often as any other.

    Nothing goes wrong with the first request under a plan: idle is what is left after it.
    """
    choose = random.Random(0)
    plans: dict[str, Plan] = {}
    troubles = cycle((None, *TROUBLES[:3], None, *TROUBLES[3:]))
    for _ in range(number):
        name, scale = choose.choice(list(TIERS)), choose.choice(LORA_SCALES[:num_scales])
        wanted = Wanted(name, choose.randrange(num_seeds), choose.random() < share_of_other_size, scale)
        plan = choose.choice(PLANS[:num_plans]) if choose.random() < 0.3 or name not in plans else plans[name]
        settled = plans.get(name) == plan
        plans[name] = plan
        yield Draw(wanted, plan, next(troubles) if settled else None, choose.randrange(1, 5))


class Session:
    """One pipeline that stays loaded while its plan changes."""

    def __init__(self, subject: Subject, adapter: Path, tier: str, world: World | None = None) -> None:
        self.rig = Rig(subject, replace(PLANS[0], tier=tier), world=world)
        self.plan = self.rig.plan
        self.rig.load()
        self._adapter = adapter

    def change(self, plan: Plan) -> None:
        self.plan = plan
        self.rig.placed.change(placements(self.rig.subject.spec, plan))

    def place(self) -> None:
        """Place what a failed placing has left out."""
        place_all(self.rig.placed, self.rig.loaded(), self.rig.subject.graph)

    def make(self, wanted: Wanted, trouble: str | None = None, at: int = 1) -> tuple[Tensor | None, str]:
        """Return the frames, or None and the name of the error that ended the request."""
        request = replace(self.rig.subject.requests[0], seeds=(wanted.seed,))
        if wanted.other_size:
            request = replace(request, **OTHER_SIZE)
        loras: tuple[LoraSpec, ...] = ()
        if wanted.lora_scale is not None:
            components = tuple(name for name in self.rig.loaded().modules() if name.startswith("transformer"))
            loras = (LoraSpec(self._adapter, 1.0, components),)
            request = replace(request, lora_scales=(wanted.lora_scale,))
        spec = spec_builders.run_spec(self.rig.subject.spec, request, loras=loras)
        interrupts, edits = Interrupts(), WeightEdits(self.rig.loaded(), self.rig.placed)
        try:
            with self._planted(trouble, at, interrupts):
                return self._run(spec, interrupts, edits), ""
        except FrameworkError as error:
            return None, type(error).__name__
        finally:
            edits.apply([])

    def settle(self, wanted: Wanted) -> None:
        """Come back to what is idle under the plan, where the last request left something else.

        Where memory ran out the engine went on with a smaller plan: take the wanted one again, and a request under it.
        A plan that retains weights takes three, for an error or an edit gives them up: the first brings them again, and
        after the third each layer has been in every slot that it comes to.
        """
        built = len(self.rig.placed.components())
        self.change(self.plan)
        smaller = len(self.rig.placed.components()) < built
        for _ in range(3 if self.plan.lifetime == "retained" else smaller):
            self.make(replace(wanted, lora_scale=None))

    def _run(self, spec: RunSpec, interrupts: Interrupts, edits: WeightEdits) -> Tensor:
        rig = self.rig
        result = run_requests(
            spec,
            rig.subject.graph,
            rig.loaded(),
            EventBus(rig._watch),
            interrupts=interrupts,
            keep=("frames",),
            placed=rig.placed,
            edits=edits,
        )
        frames: Tensor = result.requests[0].values["frames"].data
        return frames

    @contextmanager
    def _planted(self, trouble: str | None, at: int, interrupts: Interrupts) -> Iterator[None]:
        """Let the `at`-th copy, allocation, layer or use of the block go wrong in the way named."""
        faults = self.rig.world.faults
        if trouble == "copy":
            faults.fail_copy(at)
        if trouble == "memory":
            faults.fail_allocation(20 * at)
        calls = iter(range(1, 1 << 30))

        def layer(_: Any, __: Any, output: Any) -> Any:
            if next(calls) != at:
                return output
            if trouble == "interrupt":
                raise KeyboardInterrupt
            if trouble == "raises":
                raise ValueError("planted")
            return tuple(one * float("nan") for one in output) if isinstance(output, tuple) else output * float("nan")

        def stop(event: Event) -> None:
            if isinstance(event, UseStarted):
                interrupts.request()

        handles = []
        if trouble in ("interrupt", "raises", "not finite"):
            handles = [block.register_forward_hook(layer) for block in self._blocks()]
        if trouble == "asked to stop":
            self.rig.watchers.append(stop)
        try:
            yield
        finally:
            faults.clear()
            self.rig.watchers.clear()
            for handle in handles:
                handle.remove()

    def _blocks(self) -> list[torch.nn.Module]:
        module: Any = self.rig.loaded().module("transformer")
        return list(getattr(module, "blocks", None) or module.transformer_blocks)

    def num_hooks(self) -> int:
        parts = [part for module in self.rig.loaded().modules().values() for part in module.modules()]
        return sum(len(part._forward_hooks) + len(part._forward_pre_hooks) for part in parts)


def save_adapter(subject: Subject, path: Path) -> Path:
    """An adapter for some layers of a pipeline's denoiser; where it has two experts, it is for both."""
    rig = Rig(subject, Plan("component-offload"))
    weights = dict(rig.load().module("transformer").named_parameters())
    names = [name.removesuffix(".weight") for name in weights if name.endswith("to_q.weight")][:6]
    numbers = torch.Generator().manual_seed(5)
    tensors = {}
    for name in names:
        out, into = weights[f"{name}.weight"].shape
        tensors[f"{name}.lora_A.weight"] = torch.randn(2, into, generator=numbers)
        tensors[f"{name}.lora_B.weight"] = torch.randn(out, 2, generator=numbers)
    weights.clear()
    rig.close()
    save_file(tensors, path)
    return path


def fresh_frames(subject: Subject, adapter: Path, wanted: Wanted) -> Tensor:
    """What a machine of its own makes of `wanted`, everything resident."""
    session = Session(subject, adapter, "pinned")
    session.change(Plan("resident"))
    frames, error = session.make(wanted)
    assert frames is not None, error
    session.rig.close()
    return frames


def figures(world: World, sessions: dict[str, Session]) -> dict[str, int]:
    """What must not grow from request to request, once everything is placed and no copy is under way."""
    for session in sessions.values():
        session.place()
    world.synchronize()
    gc.collect()
    ledgers = [session.rig.placed.resources.store.ledger for session in sessions.values()]
    return {
        "device bytes": world.devices[0].ledger.live_bytes,
        "pinned bytes": world.pinned.live_bytes,
        "granted pins": sum(ledger.granted_bytes for ledger in ledgers),
        "threads": threading.active_count(),
        "open files": len(os.listdir("/dev/fd")),
        "hooks": sum(session.num_hooks() for session in sessions.values()),
        "tensors": sum(issubclass(type(one), Tensor) for one in gc.get_objects()),
    }
