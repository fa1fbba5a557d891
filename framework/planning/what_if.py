"""What a plan would be if something were otherwise: more memory, another size, fewer bits. No torch.

Other sizes are scaled from the work that is known, so that no further pass is needed: such lines say `about`.
"""

from collections.abc import Iterator, Mapping
from dataclasses import replace

from framework.planning.choose import select
from framework.planning.facts import CallWork, Kernel, StageWork, Work
from framework.planning.forecast import forecast
from framework.planning.plan import Plan, Planner, uniform_presets
from framework.planning.problem import DIT, LAYERWISE, PlanProblem, Wish
from framework.planning.reasons import size
from framework.planning.refusal import CannotFit
from framework.platforms.hardware import GIB
from framework.quantization import METHODS, Quantization
from framework.spec import RequestSpec, RunSpec

MORE_BYTES = 2 * 10**9
WORTH = 0.005  # of the time: less is nothing
VIDEO_HEIGHTS, PICTURE_HEIGHTS = (480, 720, 1080), (512, 768, 1024, 1536, 2048)
STEP = 16  # pixels that sizes are multiples of
FEWER_BITS = "torchao-fp8"
TEXT_GROUP = "text_encoder"


def what_ifs(plan: Plan) -> Iterator[str]:
    """Yield one line for each change worth knowing of, where the plan fits."""
    yield from _more_memory(plan)
    yield from _wasted_prefetch(plan)
    if plan.selection is None:
        yield from _as_planned(plan)
    yield from _next_sizes(plan)


def fewer_bits(planner: Planner, spec: RunSpec, plan: Plan) -> Iterator[str]:
    """Yield what the denoisers in fewer bits would bring."""
    names = [name for name, one in plan.problem.components.items() if one.group == DIT]
    if not names or set(names) & set(spec.numerics.quantize) or plan.problem.hardware.unified:
        return
    problem = in_fewer_bits(planner, spec, plan.problem)
    found = _best(_free(problem) if plan.selection is None else problem)
    if isinstance(found, float):
        gain = plan.forecast.seconds - found
        if gain > WORTH * plan.forecast.seconds:
            yield f"numerics.quantize.dit={FEWER_BITS} (changes the picture): about {gain:.1f} s less"


def smaller(planner: Planner, spec: RunSpec, problem: PlanProblem, request: RequestSpec) -> Iterator[str]:
    """Yield the changes of a request that does not fit with which it would, nearest first."""
    free = _free(problem) if not spec.planned else problem
    if not spec.planned and isinstance(_best(free), float):
        yield "residency=auto fits"
    for label, factor in (*_heights_below(request), *_frames_below(request)):
        if isinstance(_best(scaled(free, factor)), float):
            yield f"{label} fits, about"
            break
    if not set(spec.numerics.quantize) and isinstance(_best(in_fewer_bits(planner, spec, free)), float):
        yield f"numerics.quantize.dit={FEWER_BITS} fits (changes the picture)"


def in_fewer_bits(planner: Planner, spec: RunSpec, problem: PlanProblem) -> PlanProblem:
    names = [name for name, one in problem.components.items() if one.group == DIT]
    method = Quantization(method=METHODS[FEWER_BITS])
    other = replace(spec, numerics=replace(spec.numerics, quantize=dict.fromkeys(names, method)))
    return replace(problem, components=planner.sizes(other, frozenset(problem.components)), presets={})


def scaled(problem: PlanProblem, factor: float) -> PlanProblem:
    """Return the problem for pictures of `factor` times the pixels and frames; texts stay as they are."""
    work = problem.work
    texts = {name for name, one in problem.components.items() if one.group == TEXT_GROUP}
    stages = tuple(_stage(stage, factor, texts) for stage in work.stages)
    return replace(problem, work=replace(work, stages=stages, exact=False), presets={})


def _more_memory(plan: Plan) -> Iterator[str]:
    """What 2 GB more of device memory would buy."""
    if plan.selection is None or plan.problem.hardware.unified:
        return
    hardware, budgets = plan.problem.hardware, plan.problem.budgets
    more = None if budgets.device is None else budgets.device + MORE_BYTES
    bigger = replace(
        plan.problem,
        hardware=replace(hardware, memory_gib=hardware.memory_gib + MORE_BYTES / GIB),
        budgets=replace(budgets, device=more),
        presets={},
    )
    found = select(bigger, options=plan.selection.options).forecast.seconds
    gain = plan.forecast.seconds - found
    bought = f"save {gain:.1f} s" if gain > WORTH * plan.forecast.seconds else "buy nothing"
    yield f"2 GB more of device memory would {bought}"


def _wasted_prefetch(plan: Plan) -> Iterator[str]:
    """Layers ahead that save no time but hold memory."""
    for name, choice in plan.choices.items():
        depth = max(choice.prefetch, default=0)
        if choice.mode != LAYERWISE or depth < 2:
            continue
        less = {**plan.choices, name: replace(choice, prefetch=tuple(min(1, count) for count in choice.prefetch))}
        found = forecast(plan.problem, less)
        if found.seconds <= plan.forecast.seconds * (1 + WORTH):
            freed = plan.forecast.peak_bytes - found.peak_bytes
            at_peak = f" and would free {size(freed)} at the peak" if freed > 0 else ""
            yield f"layerwise.{name}.prefetch={depth} is no faster than 1{at_peak}"


def _as_planned(plan: Plan) -> Iterator[str]:
    found = _best(_free(plan.problem))
    if isinstance(found, float) and found < plan.forecast.seconds * (1 - WORTH):
        yield f"residency=auto: {plan.forecast.seconds - found:.1f} s less"


def _next_sizes(plan: Plan) -> Iterator[str]:
    """Whether the next sizes fit: as the plan has it, or where it is the planner's, as any preset would."""
    request, room = plan.request, plan.problem.device_bytes
    placed = [plan.choices, *(plan.problem.presets.values() if plan.selection is not None else ())]
    for label, factor in (*_heights_above(request), *_frames_above(request)):
        other = scaled(plan.problem, factor)
        found = [forecast(other, choices) for choices in placed]
        fitting = [one for one in found if one.peak_bytes <= room]
        if fitting:
            best = min(fitting, key=lambda one: one.seconds)
            yield f"{label}: fits, about {best.seconds:.0f} s and {size(best.peak_bytes)} at the peak"
        elif plan.selection is not None:
            lacking = min(one.peak_bytes for one in found) - room
            yield f"{label}: does not fit, about {size(lacking)} of device memory are missing"
        else:
            yield f"{label}: does not fit these placements, it needs about {size(found[0].peak_bytes)}"


def _heights_above(request: RequestSpec) -> list[tuple[str, float]]:
    return _heights(request, above=True)[:1]


def _heights_below(request: RequestSpec) -> list[tuple[str, float]]:
    return _heights(request, above=False)[::-1]


def _heights(request: RequestSpec, *, above: bool) -> list[tuple[str, float]]:
    """Usual sizes above or below that of the request, its shape kept, with the factor in pixels."""
    height, width = request.height, request.width
    if not height or not width:
        return []
    short = min(height, width)
    usual = VIDEO_HEIGHTS if (request.num_frames or 1) > 1 else PICTURE_HEIGHTS
    found = []
    for side in usual:
        if side > short if above else side < short:
            own = [_multiple(edge * side / short) for edge in (height, width)]
            label = f"request.height={own[0]} request.width={own[1]}"
            found.append((label, own[0] * own[1] / (height * width)))
    return found


def _frames_above(request: RequestSpec) -> list[tuple[str, float]]:
    frames = request.num_frames or 1
    return [(f"request.num_frames={2 * frames - 1}", (2 * frames - 1) / frames)] if frames > 1 else []


def _frames_below(request: RequestSpec) -> list[tuple[str, float]]:
    """Half as many, again and again; videos have four frames a latent one, and a first."""
    frames, found = request.num_frames or 1, []
    while frames > 8:
        frames = (frames - 1) // 8 * 4 + 1
        found.append((f"request.num_frames={frames}", frames / (request.num_frames or 1)))
    return found


def _multiple(pixels: float) -> int:
    return max(STEP, round(pixels / STEP) * STEP)


def _free(problem: PlanProblem) -> PlanProblem:
    """The same problem with nothing fixed."""
    none: Mapping[str, Wish] = {}
    return replace(problem, wishes=none, presets=uniform_presets(problem))


def _best(problem: PlanProblem) -> float | str:
    """Seconds of the best answer, else what lacks."""
    try:
        return select(problem).forecast.seconds
    except CannotFit as refusal:
        found = refusal.refusal
        return f"{size(found.lacking_bytes)} of {found.resource} memory are missing"


def _stage(stage: StageWork, factor: float, texts: set[str]) -> StageWork:
    calls = tuple(
        counted if counted.call.component in texts else replace(counted, call=_call(counted.call, factor))
        for counted in stage.calls
    )
    if calls == stage.calls and calls:
        return stage
    return replace(stage, calls=calls, extra_bytes=int(stage.extra_bytes * factor))


def _call(call: CallWork, factor: float) -> CallWork:
    known: dict[int, Work] = {}  # layers alike share one object
    for work in call.layer_work:
        known.setdefault(id(work), _work(work, factor))
    return replace(
        call,
        layer_work=tuple(known[id(work)] for work in call.layer_work),
        before=_work(call.before, factor),
        after=_work(call.after, factor),
        activation_bytes=int(call.activation_bytes * factor),
        live_bytes=int(call.live_bytes * factor),
    )


def _work(work: Work, factor: float) -> Work:
    """Attention grows with the square of the tokens, everything else with them."""
    return replace(
        work,
        matmul_flops=work.matmul_flops * factor,
        attention_flops=work.attention_flops * factor**2,
        conv_flops=work.conv_flops * factor,
        touched_bytes=int(work.touched_bytes * factor),
        kernels=tuple(_kernel(kernel, factor) for kernel in work.kernels),
    )


def _kernel(kernel: Kernel, factor: float) -> Kernel:
    power = 2 if kernel.kind == "attention" else 1
    return replace(kernel, flops=kernel.flops * factor**power, size_bytes=int(kernel.size_bytes * factor))
