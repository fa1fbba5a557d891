"""The choice of placements: optimal, inside the budgets, explained, and never worse than what is shipped."""

import sys
from dataclasses import replace
from itertools import product

import plan_cases as cases
import pytest

from framework.memory.host_budget import HostMemory
from framework.planning.choose import all_options, select
from framework.planning.facts import Budgets, Choice
from framework.planning.footprint import layer_sizes
from framework.planning.forecast import forecast
from framework.planning.host import host_use, traffic_tiers
from framework.planning.memory import footprints, moment_parts, stage_peaks
from framework.planning.options import FINE, Option, _resident_counts
from framework.planning.plan import uniform_presets
from framework.planning.problem import LAYERWISE, RESIDENT, WHOLE, PlanProblem, Reserve, Wish
from framework.planning.refusal import CannotFit
from framework.planning.uses import Life, live_through
from framework.platforms.hardware import GIB

PROBLEMS = {
    f"{name} on {card}": make(card)
    for name, make in (("wan", cases.wan), ("flux", cases.flux), ("eight", cases.eight))
    for card in ("rtx_3060_12gb", "rtx_4090", "h100")
}


def fits(problem: PlanProblem, life: Life, options: tuple[Option, ...]) -> bool:
    """Ask the models of memory themselves, not the capacities that the search is given."""
    choices = {option.choice.component: option.choice for option in options}
    if any(peak.size_bytes > problem.device_bytes for peak in stage_peaks(problem, choices, life)):
        return False
    host = host_use(problem, choices)
    as_asked = all(
        traffic_tiers(host.traffic[n]) <= {c.tier, "pageable"} for n, c in choices.items() if n in host.traffic
    )
    pinned = all(
        traffic_tiers(host.traffic[n]) == {"pinned"}
        for n, c in choices.items()
        if c.tier == "pinned" and n in host.traffic
    )
    return as_asked and pinned and not host.over_bytes and host.host_bytes < problem.host_memory.available_bytes


def brute_force(problem: PlanProblem) -> float | None:
    """Seconds of the first combination that fits, all tried from the fastest on."""
    life = live_through(problem.work, problem.uses)
    options = all_options(problem, life)
    everything = sorted(product(*options.values()), key=lambda one: sum(option.seconds for option in one))
    return next((sum(option.seconds for option in one) for one in everything if fits(problem, life, one)), None)


@pytest.mark.parametrize("block", [0, 1, *(pytest.param(block, marks=pytest.mark.slow) for block in range(2, 10))])
def test_no_combination_that_fits_is_faster(block: int) -> None:
    for seed in range(block * 50, block * 50 + 50):
        problem = cases.small(seed)
        best = brute_force(problem)
        if best is None:
            with pytest.raises(CannotFit):
                select(problem)
        else:
            assert select(problem).forecast.seconds == pytest.approx(best, rel=1e-9), seed


def test_the_random_problems_are_of_every_kind() -> None:
    kinds: set[tuple[str, str]] = set()
    for seed in range(60):
        try:
            kinds.update((choice.mode, choice.tier) for choice in select(cases.small(seed)).choices.values())
        except CannotFit:
            kinds.add(("refused", ""))
    assert {mode for mode, _ in kinds} == {RESIDENT, WHOLE, LAYERWISE, "refused"}
    assert {tier for _, tier in kinds} >= {"pinned", "pageable", "device"}


@pytest.mark.parametrize("name", PROBLEMS)
def test_the_answer_keeps_within_every_budget(name: str) -> None:
    problem = PROBLEMS[name]
    found = select(problem)
    assert found.forecast.peak_bytes <= found.device_bytes
    assert found.forecast.host_bytes <= problem.host_memory.available_bytes
    assert set(found.choices) == set(problem.components)


def same_mode(problem: PlanProblem, mode: str) -> dict[str, Choice]:
    chosen = {}
    for name, part in problem.components.items():
        own = mode if mode != LAYERWISE or part.stacks else WHOLE
        chosen[name] = Choice(
            component=name,
            mode=own,
            prefetch=(1,) * len(part.stacks),
            resident=(0,) * len(part.stacks),
            tier="device" if own == RESIDENT else "pinned",
        )
    return chosen


@pytest.mark.parametrize("name", PROBLEMS)
def test_it_is_never_slower_than_one_mode_for_all(name: str) -> None:
    presets = {mode: same_mode(PROBLEMS[name], mode) for mode in (RESIDENT, WHOLE, LAYERWISE)}
    found = select(replace(PROBLEMS[name], presets=presets))
    for seconds in found.presets.values():
        assert seconds is None or found.forecast.seconds <= seconds * (1 + 1e-9)


def test_a_preset_that_beats_the_search_is_taken_and_named() -> None:
    problem = cases.qwen("rtx_4090", budgets=Budgets(pinned=30 * 10**9))
    plain = select(problem)
    # The search gives a component one tier; this one has part of its layers pinned.
    mine = Choice(component="transformer", mode=LAYERWISE, prefetch=(1,), resident=(29,))
    found = select(replace(problem, presets={"mine": {"transformer": mine}}))
    assert found.forecast.seconds < plain.forecast.seconds
    assert found.preset == "mine"
    assert "preset 'mine'" in found.choices["transformer"].reason


def test_a_preset_that_does_not_fit_has_no_seconds() -> None:
    problem = cases.wan("rtx_3060_12gb")
    assert select(replace(problem, presets={"all": same_mode(problem, RESIDENT)})).presets == {"all": None}


def test_a_short_clip_on_a_large_card_stays_resident() -> None:
    found = select(cases.wan("h100", tflop=270, activations=1e9))
    assert {choice.mode for choice in found.choices.values()} == {RESIDENT}


def test_a_small_card_streams_what_it_cannot_hold() -> None:
    found = select(cases.wan("rtx_3060_12gb", budgets=Budgets(device=8 * 10**9)))
    assert {found.choices[name].mode for name in ("transformer", "transformer_2")} == {LAYERWISE}


def test_layers_are_kept_rather_than_loaded_further_ahead() -> None:
    chosen = select(cases.qwen("rtx_4090")).choices["transformer"]
    assert (chosen.mode, chosen.prefetch) == (LAYERWISE, (1,))
    assert chosen.resident[0] > 20


def test_what_the_user_fixed_is_kept() -> None:
    wishes = {"transformer": Wish(resident=(5, 0), prefetch=(2, 2)), "vae": Wish(mode=WHOLE)}
    chosen = select(cases.flux("rtx_4090", wishes=wishes)).choices
    assert (chosen["transformer"].mode, chosen["transformer"].resident) == (LAYERWISE, (5, 0))
    assert chosen["transformer"].prefetch == (2, 2)
    assert chosen["vae"].mode == WHOLE


def test_the_answer_is_the_same_every_time() -> None:
    one, other = select(cases.flux("rtx_4090")), select(cases.flux("rtx_4090"))
    assert (one.choices, one.forecast, one.alternatives) == (other.choices, other.forecast, other.alternatives)


def test_every_choice_says_why_and_what_was_nearest() -> None:
    found = select(cases.wan("rtx_4090"))
    assert (
        "transformer streams: 28.6 GB of weights, 6.8 GB left for it in denoise" in found.choices["transformer"].reason
    )
    assert all(choice.reason for choice in found.choices.values())
    near = {str(one) for one in found.alternatives if one.component == "transformer"}
    assert any("staying on the device lacks" in text and "in denoise" in text for text in near)


def test_an_alternative_that_fits_would_cost_time() -> None:
    found = select(cases.flux("h100", simplicity_s=0.0))
    fitting = [one for one in found.alternatives if not one.short_bytes]
    assert fitting
    assert all(one.seconds >= -1e-9 for one in fitting)


def test_a_copy_in_every_step_waits_on_the_bus_for_what_is_sent_ahead() -> None:
    """So a layer more that stays pays off, even where compute covers all copies."""
    problem = cases.wan("rtx_4090", tflop=20000, host=HostMemory(2**40, 2**40))

    def with_copies(count: int) -> PlanProblem:
        stages = tuple(
            replace(
                stage,
                outside=replace(stage.outside, h2d_copies=count),
                calls=tuple(replace(one, steps=(0, one.count)) if one.count > 1 else one for one in stage.calls),
            )
            for stage in problem.work.stages
        )
        return replace(problem, work=replace(problem.work, stages=stages))

    streamed = uniform_presets(problem)["all layerwise-offload"]
    plain, waiting = (forecast(with_copies(count), streamed).seconds for count in (0, 1000))
    one_copy = max(layer_sizes(problem.components["transformer"])) * problem.make_rates().pinned_s
    steps = max(one.count for stage in problem.work.stages for one in stage.calls)
    assert waiting == pytest.approx(plain + (steps - 1) * one_copy, rel=1e-3)
    assert max(select(with_copies(1000)).choices["transformer"].resident) > 0


@pytest.mark.parametrize("seed", range(20))
def test_a_peak_is_the_highest_moment_of_its_stage(seed: int) -> None:
    """Moments are followed by what changes; each summed up by itself gives the same."""
    problem = cases.small(seed)
    life = live_through(problem.work, problem.uses)
    choices = {name: own[seed % len(own)].choice for name, own in all_options(problem, life).items()}
    held = footprints(problem, choices)
    for peak in stage_peaks(problem, choices, life):
        moments = [moment for moment in life.moments if moment.stage == peak.stage]
        assert peak.size_bytes == max(sum(moment_parts(problem.components, held, one).values()) for one in moments)


def test_a_short_run_is_not_slowed_down_for_a_simpler_mode() -> None:
    """What a simpler mode may cost shrinks with the run: here everything is a thousand times as fast."""
    problem = cases.flux("rtx_4090")
    card = problem.hardware
    rates = ("bf16_tflops", "fp32_tflops", "memory_gbps", "h2d_pinned_gbps", "h2d_pageable_gbps", "disk_gbps")
    faster = {name: getattr(card, name) * 1000 for name in rates}
    short = replace(problem, hardware=replace(card, **faster, launch_us=card.launch_us / 1000))
    best = select(replace(short, simplicity_s=0.0)).forecast.seconds
    assert select(short).forecast.seconds <= 1.005 * best


def test_a_component_of_unknown_size_is_in_no_sum_and_said_so() -> None:
    problem = cases.flux("rtx_4090")
    unknown = replace(problem.components["vae"], size_bytes=None, leftover_bytes=0)
    found = select(replace(problem, components={**problem.components, "vae": unknown}))
    assert found.forecast.unknown == ("vae",)
    assert "nobody knows its size" in found.choices["vae"].reason
    assert found.choices["vae"].mode == WHOLE


def test_where_memory_is_unified_nothing_moves() -> None:
    problem = cases.flux("h100")
    found = select(replace(problem, hardware=replace(problem.hardware, unified=True)))
    assert {choice.mode for choice in found.choices.values()} == {RESIDENT}


def test_a_component_without_layers_is_not_streamed() -> None:
    problem = cases.flux("rtx_4090")
    options = all_options(problem, live_through(problem.work, problem.uses))
    assert LAYERWISE not in {option.choice.mode for option in options["vae"]}


@pytest.mark.parametrize(
    "card", ["rtx_3060_12gb", *(pytest.param(n, marks=pytest.mark.slow) for n in ("rtx_4090", "h100"))]
)
def test_eight_components_are_placed_with_little_work(card: str) -> None:
    """A million calls take less than half a second; `python -m bench.scaling` has the time itself."""
    assert calls_to_place(cases.eight(card)) < 1_000_000


def calls_to_place(problem: PlanProblem) -> int:
    """Python functions called by the choice: the same on a busy machine as on an idle one."""
    counted = 0

    def count(_frame: object, event: str, _argument: object) -> None:
        nonlocal counted
        counted += event == "call"

    sys.setprofile(count)
    try:
        select(problem)
    finally:
        sys.setprofile(None)
    return counted


# Nothing fits


def refusal(problem: PlanProblem) -> CannotFit:
    with pytest.raises(CannotFit) as caught:
        select(problem)
    return caught.value


def test_a_refusal_names_stage_and_bytes_to_the_byte() -> None:
    problem = cases.wan("rtx_4090", budgets=Budgets(device=5 * 10**9))
    found = refusal(problem).refusal
    assert (found.resource, found.where, found.available_bytes) == ("device", "denoise", 5 * 10**9)
    enough = replace(problem, budgets=Budgets(device=found.needed_bytes))
    assert select(enough).forecast.peak_bytes == found.needed_bytes
    assert refusal(replace(problem, budgets=Budgets(device=found.needed_bytes - 1))).refusal.resource == "device"


def test_a_refusal_names_what_of_the_users_leaves_no_more() -> None:
    tight = refusal(cases.wan("rtx_4090", budgets=Budgets(device=5 * 10**9)))
    assert "and there is 5.0 GB by budget.device; what would fit: " in str(tight)
    held = refusal(cases.wan("rtx_4090", reserve=Reserve(context=20 * GIB, workspace=0)))
    assert " GB beside reserve.context; what would fit: " in str(held)
    small = cases.wan("rtx_4090")
    small = replace(small, hardware=replace(small.hardware, memory_gib=4.0))
    assert refusal(small).refusal.bound == ""


def test_activations_that_are_too_large_are_named() -> None:
    text = str(refusal(cases.wan("rtx_4090", activations=40e9)))
    assert text.startswith("stage 'denoise' needs 4")
    assert "activations" in text


def test_a_fixed_placement_in_the_way_is_named() -> None:
    found = refusal(cases.wan("rtx_4090", wishes={"transformer": Wish(mode=RESIDENT), "vae": Wish(mode=WHOLE)}))
    assert found.refusal.freed == ("transformer",)
    assert "leave component_residency.transformer to the planner" in str(found)


def test_host_memory_that_lacks_is_named_with_what_would_do() -> None:
    problem = cases.wan("rtx_4090")
    cast = {name: replace(part, file_dtype="float32", dtype="bfloat16") for name, part in problem.components.items()}
    found = refusal(replace(problem, components=cast))
    assert found.refusal.resource == "host"
    assert "more of host memory" in str(found)
    assert found.exit_code == 3


def test_the_forecast_of_the_answer_is_what_the_search_reckoned_with() -> None:
    problem = cases.flux("rtx_4090")
    found = select(problem)
    assert found.forecast == forecast(problem, found.choices)


@pytest.mark.parametrize("lengths", [(60,), (2048,), (19, 38), (700, 900)], ids=str)
def test_no_stack_has_so_many_counts_that_a_plan_takes_long(lengths: tuple[int, ...]) -> None:
    counts = list(_resident_counts(lengths))
    assert counts[0] == (0,) * len(lengths)
    assert counts[-1] == lengths
    assert len(counts) <= 3 * (FINE + 1)
    if lengths == (60,):
        assert len(counts) == 61
