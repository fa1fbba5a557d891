"""The strategies of a run, one for each component, over shared resources. Imports torch.

They are built before the first request and outside inference mode: weights made inside it could not be written again.
"""

import inspect
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import torch
from torch import nn

from framework.errors import FrameworkError, PlanError, StageError
from framework.loading.weights import size_bytes
from framework.memory.layers import loose_tensors
from framework.memory.resources import Resources
from framework.memory.unpin import is_short
from framework.registry import STRATEGIES
from framework.runtime.sharing import MIB, Footprint
from framework.runtime.strategy import Strategy
from framework.spec import EMPTY, Placement

RESIDENT = "resident"


class Placed:
    """Builds, finds and gives up strategies. A component without a placement is resident.

    `capacity_bytes` is what the device has now, before anything is placed; `capped`: because the user said so.
    Components in `elsewhere` have a device of their own with resources there, and take nothing of the run's.
    """

    def __init__(
        self,
        placements: Mapping[str, Placement],
        resources: Resources,
        capped: bool = False,
        elsewhere: Mapping[str, Resources] = EMPTY,
    ) -> None:
        self.resources, self.capped = resources, capped
        self.capacity_bytes = resources.platform.memory().free_bytes
        self._placements = dict(placements)
        self._elsewhere = dict(elsewhere)
        self._built: dict[str, tuple[nn.Module, Strategy]] = {}
        self._peak_bytes, self._began_s = 0, 0.0

    def resources_of(self, component: str) -> Resources:
        """Return the resources of the device that `component` computes on."""
        return self._elsewhere.get(component, self.resources)

    def moved(self) -> Counter[tuple[str, str]]:
        """Return the bytes that have been copied, by component and direction, to and from all devices."""
        found: Counter[tuple[str, str]] = Counter(self.resources.courier.moved)
        for other in {id(other): other for other in self._elsewhere.values()}.values():
            found.update(other.courier.moved)
        return found

    def placement(self, component: str) -> Placement:
        return self._placements.get(component) or Placement(component=component, group=None, mode=RESIDENT)

    def mode(self, component: str) -> str:
        return self.placement(component).mode

    def components(self) -> tuple[str, ...]:
        """Names of the components that have a strategy, in the order they were built."""
        return tuple(self._built)

    def built(self, component: str) -> tuple[nn.Module, Strategy]:
        """Return module and strategy of one of `components()`."""
        return self._built[component]

    def has(self, component: str, module: nn.Module) -> bool:
        """Whether there is a strategy of `component` for this very module."""
        known = self._built.get(component)
        return known is not None and known[0] is module

    def strategy(self, component: str, module: nn.Module) -> Strategy:
        """Return the strategy of `component`, built now if there is none for this very module."""
        if self.has(component, module):
            return self._built[component][1]
        self.forget(component)
        placement = self.placement(component)
        try:
            with outside_inference():
                strategy = _build(placement, module, self.resources_of(component))
                self._built[component] = module, strategy
                _optional(strategy, "place")()
        except torch.OutOfMemoryError as error:
            self.forget(component)
            raise PlanError(
                f"component '{component}' ({placement.mode}) does not fit on the device: {first_line(error)}; "
                f"{_needs_less(placement)}"
            ) from error
        except FrameworkError:
            self.forget(component)
            raise
        except Exception as error:
            self.forget(component)
            reason = f"component '{component}' ({placement.mode}) cannot be placed: {first_line(error)}"
            raise FrameworkError(reason) from error
        return strategy

    def forget(self, component: str) -> None:
        """Give a component up: hooks, device copies and what it has booked; its weights stay in the module."""
        known = self._built.pop(component, None)
        if known is not None:
            with outside_inference():
                detach = getattr(known[1], "detach", None) or (lambda: known[1].finish_request(False))
                detach()
            self.resources_of(component).store.release_component(component)
            _clear_caches(known[0])

    def place_anew(self, placement: Placement) -> None:
        """Give one component another placement; its strategy is built at its next use."""
        name = placement.component
        self.forget(name)
        self._placements[name] = placement

    def change(self, placements: Mapping[str, Placement], ring_names: Mapping[str, str] | None = None) -> None:
        """Take another plan. What stays as it was is left alone; the rest is built again at its next use.

        `ring_names` are those of the new plan; None leaves them. Host tiers stay those of the first plan.
        """
        before = self.resources.ring_names
        rings = before if ring_names is None else ring_names
        for component in list(self._built):
            after = placements.get(component) or Placement(component=component, group=None, mode=RESIDENT)
            same_ring = before.get(component) == rings.get(component)
            if not same_ring or _choice(after) != _choice(self.placement(component)):
                self.forget(component)
        self.resources = replace(self.resources, ring_names=dict(rings))
        self._placements = dict(placements)

    def close(self) -> None:
        """Give every component up."""
        for component in list(self._built):
            self.forget(component)

    def relieve_host(self, in_use: Collection[str]) -> str | None:
        """Where the host runs short, give back the pins of components that rest; return the line that says so."""
        store = self.resources.store
        if not store.ledger.granted_bytes or not is_short(store.memory()):
            return None
        resting = {name: strategy for name, (_, strategy) in self._built.items() if name not in in_use}
        with outside_inference():
            given = {name: _optional(strategy, "give_back_pins", int)() for name, strategy in resting.items()}
        names = ", ".join(name for name, size in given.items() if size)
        if not names:
            return None
        return (
            f"the host runs short of memory: {sum(given.values()) / MIB:.1f} MiB of page-locked weights given back "
            f"({names}); their copies are slower from now on"
        )

    def loose_bytes(self) -> dict[str, int]:
        """Return the device bytes of tensors that components keep beside their weights, where they keep any.

        They are made by a first call (rope tables) and stay, so they count as idle from the first request on.
        """
        found = {}
        for component, (module, _) in self._built.items():
            device = self.resources_of(component).platform.device
            loose = {id(tensor): tensor.nbytes for tensor in loose_tensors(module).values() if tensor.device == device}
            if loose:
                found[component] = sum(loose.values())
        return found

    def offloaded_bytes(self) -> dict[str, int]:
        """Return the bytes of weights of the components that share the device and are not resident."""
        shared = {name: built[0] for name, built in self._built.items() if name not in self._elsewhere}
        return {name: size_bytes(module) for name, module in shared.items() if self.mode(name) != RESIDENT}

    def footprints(self) -> dict[str, Footprint]:
        """Return the device bytes of every component built so far, with what it keeps beside its weights."""
        found = {}
        loose = {} if self.resources.platform.unified else self.loose_bytes()
        for component, (module, strategy) in self._built.items():
            if component in self._elsewhere:
                found[component] = Footprint(0, 0)
                continue
            whole = size_bytes(module)
            used = getattr(strategy, "device_bytes", whole)
            idle = getattr(strategy, "idle_bytes", 0)
            if component in self.resources.ring_names:
                idle -= getattr(strategy, "kept_ring_bytes", 0)  # whoever uses the ring next has it in its own figure
            more = loose.get(component, 0)
            found[component] = Footprint(used + more, idle + more)
        return found

    def begin_measuring(self) -> None:
        """A request begins: its peak is measured stage by stage."""
        self._peak_bytes, self._began_s = 0, self._device_seconds()
        self.resources.platform.reset_peak()

    def begin_stage(self) -> None:
        """A stage begins: what was between it and the one before counts for the request alone."""
        self._peak_bytes, self._began_s = self.peak_bytes, self._device_seconds()
        self.resources.platform.reset_peak()

    def end_stage(self) -> tuple[int | None, float | None]:
        """Return the stage's peak of device memory, and its seconds by the clock of a simulated device."""
        platform, began = self.resources.platform, self._began_s
        peak = platform.memory().peak_bytes
        seconds = self._device_seconds() - began if hasattr(platform, "seconds") else None
        return None if platform.unified else peak, seconds

    @property
    def peak_bytes(self) -> int:
        """Peak of device memory since the request began."""
        return max(self._peak_bytes, self.resources.platform.memory().peak_bytes)

    def _device_seconds(self) -> float:
        clock: Callable[[], float] = getattr(self.resources.platform, "seconds", lambda: 0.0)
        return clock()

    def fitting_beside_a_request(self, components: Iterable[str]) -> frozenset[str]:
        """Return those of `components` that the device could hold in use even at the peak that has been measured."""
        figures, footprints = self.resources.platform.memory(), self.footprints()
        spare = figures.free_bytes + figures.allocated_bytes - self.peak_bytes
        chosen = []
        for component in components:
            more = footprints[component].used_bytes - footprints[component].idle_bytes
            if self.resources.platform.unified or more <= spare:
                chosen.append(component)
                spare -= more
        return frozenset(chosen)

    def expect_steps(self, component: str, done: int, total: int) -> None:
        """`done` of the `total` steps of the component's use are over, each with as many calls."""
        expect: Callable[[int, int], None] | None = getattr(self._built[component][1], "expect_steps", None)
        if expect is not None:
            expect(done, total)

    def forget_length(self, component: str) -> None:
        """A use was shorter than those to come: keep the order of its calls, not their number."""
        _optional(self._built[component][1], "forget_length")()

    def misplaced(self, component: str) -> list[str]:
        """Return the tensors of `component` that are not where its strategy has put them."""
        found: list[str] = _optional(self._built[component][1], "misplaced", list)()
        return found

    def audit(self, when: str) -> None:
        """Compare where each tensor is with where its strategy has put it. Raises `StageError`."""
        for component in self.components():
            wrong = self.misplaced(component)
            if wrong:
                more = f" and {len(wrong) - 3} more" if len(wrong) > 3 else ""
                raise StageError(
                    f"{when} component '{component}' ({self.mode(component)}) is not where its plan has it: "
                    f"{', '.join(wrong[:3])}{more} were moved or exchanged by other code"
                )

    def share_ring(self, one: str, other: str) -> bool:
        if self.resources_of(one) is not self.resources_of(other):
            return False
        names = self.resources.ring_names
        return one in names and names[one] == names.get(other)


@contextmanager
def outside_inference() -> Iterator[None]:
    """Tensors made in the block are ordinary ones, without gradients."""
    with torch.inference_mode(False), torch.no_grad():
        yield


def first_line(error: BaseException) -> str:
    text = str(error).strip().splitlines()
    return text[0] if text else type(error).__name__


def _build(placement: Placement, module: nn.Module, resources: Resources) -> Strategy:
    """Call the constructor; one that takes no `resources` gets the four arguments that every strategy has."""
    cls = STRATEGIES.get(placement.mode)
    parameters = inspect.signature(cls).parameters.values()
    takes = any(p.name == "resources" or p.kind is inspect.Parameter.VAR_KEYWORD for p in parameters)
    shared: dict[str, Any] = {"resources": resources} if takes else {}
    strategy: Strategy = cls(placement.component, module, placement, resources.platform.device, **shared)
    return strategy


def _optional(strategy: Strategy, name: str, default: Callable[[], Any] = lambda: None) -> Callable[[], Any]:
    found: Callable[[], Any] = getattr(strategy, name, default)
    return found


def _clear_caches(module: nn.Module) -> None:
    """Empty `functools.lru_cache` of methods: some models keep rope tables in one, and with them the whole module."""
    for cls in {type(part) for part in module.modules()}:
        for method in vars(cls).values():
            cells = getattr(method, "__closure__", None) or ()  # diffusers wraps the cache once more
            for cached in (method, *(cell.cell_contents for cell in cells)):
                if hasattr(cached, "cache_clear"):
                    cached.cache_clear()


def _needs_less(placement: Placement) -> str:
    name = placement.component
    if placement.mode != "layerwise-offload":
        return f"component_residency.{name}=layerwise-offload needs less"
    return f"component_residency.{name}=component-offload keeps nothing there between uses; else raise budget.device"


def _choice(placement: Placement) -> tuple[Any, ...]:
    """What a placement decides, without the reasons for it."""
    knobs = (knob.written if knob else None for knob in (placement.prefetch, placement.resident))
    return (placement.mode, *knobs, placement.policy, placement.lifetime, placement.tier)
