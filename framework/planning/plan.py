"""A plan for one configuration on one machine: sizes, work, placements and what they come to. No torch at import.

`Planner.plan` is what `plan` prints, what `residency=auto` runs on, and what a run is held against afterwards.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from framework.errors import LoadError, PlanError
from framework.graph import Graph
from framework.memory.host_budget import HostMemory
from framework.planning.choose import Selection, select
from framework.planning.facts import Choice, ComponentSizes, Forecast, RunWork
from framework.planning.forecast import forecast
from framework.planning.host import host_use
from framework.planning.inventory import inventory
from framework.planning.limits import budgets_of, reserve_of
from framework.planning.machine import Machine
from framework.planning.options import can_stream
from framework.planning.problem import LAYERWISE, MODES, RESIDENT, WHOLE, PlanProblem
from framework.planning.profile import stored_work, work_of
from framework.planning.refusal import CannotFit, Refusal
from framework.planning.wishes import AUTO, choice_of, fixed, wish_of
from framework.spec import NumericsSpec, Placement, RequestSpec, RunSpec

TILED = "numerics.vae_tiling: auto is on, because nothing fits without: changes the picture"


class _Unknown(PlanError):
    """No work is stored for this request."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """Where everything goes and what that comes to. `problem` has sizes, work and limits that it was made from.

    `selection` is None where the config itself says every placement. `numerics` is what the plan is for: `vae_tiling`
    may have been decided. `notes` are one line each.
    """

    machine: Machine
    problem: PlanProblem
    request: RequestSpec
    choices: Mapping[str, Choice]
    forecast: Forecast
    numerics: NumericsSpec
    selection: Selection | None = None
    notes: tuple[str, ...] = ()

    @property
    def tiles(self) -> bool:
        """Whether the planner has let the VAE work in tiles."""
        return TILED in self.notes


@dataclass(slots=True)
class Planner:
    """Makes plans for many configurations; what they share (sizes, work) is found once.

    `connect=False` asks nobody over the network. `host` is what the host has; None: what the hardware profile says.
    `passes=False` makes no pass over shapes: only work that is stored is known.
    """

    connect: bool = True
    host: HostMemory | None = None
    passes: bool = True
    _sizes: dict[str, ComponentSizes | None] = field(default_factory=dict)
    _works: dict[str, RunWork] = field(default_factory=dict)
    _plans: dict[str, Plan | CannotFit] = field(default_factory=dict)

    def plan(self, spec: RunSpec, graph: Graph, machine: Machine) -> Plan:
        """Plan the request of `spec` that takes most.

        Raises `CannotFit`, `LoadError` where nobody knows the checkpoint, and `PlanError` where its work cannot be
        foreseen.
        """
        key = _question(spec, machine)
        if key not in self._plans:
            try:
                self._plans[key] = self._best(spec, graph, machine)
            except CannotFit as refusal:
                self._plans[key] = refusal
        found = self._plans[key]
        if isinstance(found, CannotFit):
            raise found.with_traceback(None)
        return found

    def _best(self, spec: RunSpec, graph: Graph, machine: Machine) -> Plan:
        try:
            return self._plan(spec, graph, machine, spec.numerics)
        except CannotFit as refusal:
            if not spec.planned or spec.numerics.vae_tiling != "auto":
                raise
            return self._tiled(spec, graph, machine, refusal)

    def plan_if_known(self, spec: RunSpec, graph: Graph, machine: Machine) -> Plan | None:
        """The same, and None where the work is not known and no pass may be made."""
        try:
            return self.plan(spec, graph, machine)
        except _Unknown:
            return None

    def problem(self, spec: RunSpec, graph: Graph, machine: Machine, numerics: NumericsSpec) -> PlanProblem:
        """Return what is asked: sizes, work and limits, with the user's wishes where the rest is to be planned."""
        hardware, on_sim = machine.profile, spec.device.partition(":")[0] == "sim"
        work = self.work(spec, graph, largest_request(spec), target_of(spec, machine), numerics)
        sizes = self.sizes(spec, graph.used_components())
        budgets = budgets_of(spec.budget, hardware, self.host)
        asked = PlanProblem(
            components=sizes,
            work=work,
            uses={node.spec.name: node.component_uses for node in graph.nodes},
            hardware=hardware,
            budgets=budgets,
            reserve=reserve_of(spec.reserve, hardware, exact=on_sim),
            host=self.host,
        )
        if not spec.planned:
            return asked
        quantized = spec.numerics.quantize
        wishes = {name: wish_of(spec.placements[name], one, quantized.get(name)) for name, one in sizes.items()}
        presets = {name: choices_of(placements, asked) for name, placements in spec.presets.items()}
        return replace(asked, wishes=wishes, presets=presets | uniform_presets(asked))

    def sizes(self, spec: RunSpec, used: frozenset[str]) -> dict[str, ComponentSizes]:
        """Each component is looked at once for each way to store it: what-if questions change one or two."""
        pipeline, quantized = spec.pipeline, spec.numerics.quantize
        parts = {name: (pipeline.model, pipeline.components.get(name), quantized.get(name)) for name in sorted(used)}
        keys = {name: repr((name, *part)) for name, part in parts.items()}
        new = frozenset(name for name, key in keys.items() if key not in self._sizes)
        if new:
            found = inventory(pipeline, new, connect=self.connect, quantized=quantized)
            self._sizes |= {keys[name]: found.get(name) for name in new}
        known = {name: self._sizes[key] for name, key in keys.items()}
        return {name: sizes for name, sizes in known.items() if sizes is not None}

    def work(self, spec: RunSpec, graph: Graph, request: RequestSpec, target: str, numerics: NumericsSpec) -> RunWork:
        numerics = replace(numerics, quantize={})  # weights in fewer bits compute in the same shapes
        key = repr((spec.pipeline, shape_of(request), numerics, target, spec.prompt_cache_memory))
        if key not in self._works:
            own = replace(spec, numerics=numerics)
            found = work_of(own, graph, request, target=target) if self.passes else None
            found = found or stored_work(own, graph, request, target=target)
            if found is None:
                raise _Unknown("the work of this request is not known yet")
            self._works[key] = found
        return self._works[key]

    def _plan(self, spec: RunSpec, graph: Graph, machine: Machine, numerics: NumericsSpec) -> Plan:
        _refuse_unknown_modes(spec, graph)
        problem = self.problem(spec, graph, machine, numerics)
        if spec.planned:
            selection = select(problem)
            choices, foretold = selection.choices, selection.forecast
        else:
            selection = None
            choices = choices_of(spec.placements, problem)
            foretold = forecast(problem, choices)
            refuse_over(problem, choices, foretold)
        return Plan(
            machine=machine,
            problem=problem,
            request=largest_request(spec),
            choices=choices,
            forecast=foretold,
            numerics=numerics,
            selection=selection,
            notes=(*machine.notes, *_about(spec, problem)),
        )

    def _tiled(self, spec: RunSpec, graph: Graph, machine: Machine, refusal: CannotFit) -> Plan:
        """Try the one choice that may change the picture. Raises `refusal` where it does not help either."""
        try:
            plan = self._plan(spec, graph, machine, replace(spec.numerics, vae_tiling=True))
        except (LoadError, PlanError):  # no VAE that can, or it does not fit so either
            raise refusal from None
        return replace(plan, notes=(*plan.notes, TILED))


def _refuse_unknown_modes(spec: RunSpec, graph: Graph) -> None:
    """Raise `PlanError` for a mode of somebody's own: nobody knows what it brings to the device, and when."""
    for name in sorted(graph.used_components()):
        mode = spec.placements[name].mode
        if mode not in (*MODES, AUTO):
            known = ", ".join(MODES)
            raise PlanError(f"nobody can foretell the mode '{mode}' of component '{name}'; a plan knows {known}")


def choices_of(placements: Mapping[str, Placement], problem: PlanProblem) -> dict[str, Choice]:
    """Return what the engine makes of the placements on this machine, for every component that is used."""
    unified = problem.hardware.unified
    return {name: choice_of(placements.get(name), sizes, unified) for name, sizes in problem.components.items()}


def uniform_presets(problem: PlanProblem) -> dict[str, dict[str, Choice]]:
    """Return the three plain answers: everything resident, everything moved whole, everything streamed.

    Where device and host are one memory it is the first one alone: the engine moves nothing there.
    """
    modes = (RESIDENT,) if problem.hardware.unified else MODES
    return {f"all {mode}": {n: _in_mode(sizes, mode) for n, sizes in problem.components.items()} for mode in modes}


def refuse_over(problem: PlanProblem, choices: Mapping[str, Choice], foretold: Forecast) -> None:
    """Raise `CannotFit` where given placements need more than there is, with what would do instead."""
    over = host_use(problem, choices).over_bytes
    available = problem.host_memory.available_bytes
    too_much = foretold.peak_bytes > problem.device_bytes
    if not (too_much or over or foretold.host_bytes > available):
        return
    wishes = {name: fixed(choice) for name, choice in choices.items()}
    select(replace(problem, wishes=wishes, presets={}))  # raises with figures, unless another host tier would do
    if too_much:
        stage = max(foretold.stages, key=lambda one: one.peak_bytes)
        figures = foretold.peak_bytes, problem.device_bytes
        raise CannotFit(Refusal("device", stage.stage, *figures, bound=problem.device_bound))
    needed = problem.host_bytes + over if over else foretold.host_bytes
    raise CannotFit(Refusal("host", "", needed, problem.host_bytes if over else available))


def largest_request(spec: RunSpec) -> RequestSpec:
    """Return the request that takes most memory, and of those the one with most steps."""

    def amount(request: RequestSpec) -> tuple[int, int]:
        pixels = (request.height or 1) * (request.width or 1) * (request.num_frames or 1) * request.num_outputs
        return pixels, request.num_inference_steps or 1

    return max(spec.requests, key=amount)


def shape_of(request: RequestSpec) -> RequestSpec:
    """Return the request without what changes no plan: seeds, and texts but for whether there is a negative one."""
    return replace(request, prompt="", negative_prompt=request.negative_prompt and "x", seeds=None)


def _question(spec: RunSpec, machine: Machine) -> str:
    """Everything that a plan depends on."""
    placed = [replace(placement, reasons=()) for placement in spec.placements.values()]
    asked = (shape_of(largest_request(spec)), len(spec.requests), bool(spec.loras), spec.prompt_cache_memory)
    limits = (machine, spec.device.partition(":")[0], spec.budget, spec.reserve)
    return repr((spec.pipeline, asked, spec.numerics, limits, spec.planned, placed))


def target_of(spec: RunSpec, machine: Machine) -> str:
    """Return the kind of device that kernels are launched on."""
    kind = spec.device.partition(":")[0]
    if kind == "sim":
        return kind
    return {"apple": "mps", "cpu": "cpu"}.get(machine.profile.vendor, "cuda")


def _in_mode(sizes: ComponentSizes, mode: str) -> Choice:
    if mode == RESIDENT:
        return Choice(component=sizes.name, mode=mode, tier="device")
    if mode != LAYERWISE or not can_stream(sizes):
        return Choice(component=sizes.name, mode=WHOLE)
    stacks = len(sizes.stacks)
    return Choice(component=sizes.name, mode=mode, prefetch=(1,) * stacks, resident=(0,) * stacks)


def _about(spec: RunSpec, problem: PlanProblem) -> tuple[str, ...]:
    """What a reader should know of how sure the plan is."""
    told: dict[str, list[str]] = {}
    for name, sizes in problem.components.items():
        for note in sizes.notes:
            told.setdefault(note, []).append(name)
    notes = [f"{', '.join(names)}: {note}" for note, names in told.items()]
    notes += [f"nobody knows the size of {name}: it is in no sum of this plan" for name in problem.unknown]
    notes += problem.work.notes
    if len(spec.requests) > 1:
        notes.append(f"planned for the largest of {len(spec.requests)} requests")
    if spec.loras:
        notes.append("adapters are not counted: they are merged into the weights")
    return tuple(dict.fromkeys(notes))
