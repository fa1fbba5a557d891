"""Bug reports of other systems about estimates of memory: ME-03, ME-08; ME-09 and ME-10 are with the runs."""

from dataclasses import replace

import plan_cases as cases
import pytest
import shipped_works

from framework.planning.choose import select
from framework.planning.facts import Choice, RunWork
from framework.planning.forecast import forecast
from framework.planning.plan import Plan
from framework.planning.problem import LAYERWISE, NO_RESERVE, PlanProblem
from framework.planning.refusal import CannotFit, Refusal

MIB = 1024**2
ROOM = 100 * MIB


def encoder_problem(table: float, rest: float) -> PlanProblem:
    """An encoder of ten layers of 2 MiB each whose token table is four fifths of its bytes."""
    part = cases.sizes("text_encoder", "text_encoder", [[2 * MIB] * 10], rest, table)
    return PlanProblem(
        components={"text_encoder": part},
        work=RunWork(stages=(cases.stage("encode_prompt", (cases.call(part, 0.1, MIB), 1)),)),
        uses={"encode_prompt": (cases.use("text_encoder"),)},
        hardware=cases.card("rtx_4090"),
        reserve=NO_RESERVE,
    )


STREAMED = {"text_encoder": Choice(component="text_encoder", mode=LAYERWISE, prefetch=(1,), resident=(0,))}


def test_me03_what_lies_outside_the_layers_is_charged() -> None:
    """ME-03: streaming the layers of an encoder does not make its token table disappear."""
    foretold = forecast(encoder_problem(table=0, rest=80 * MIB), STREAMED)
    assert foretold.peak_bytes >= 80 * MIB + 2 * 2 * MIB
    assert foretold.stages[0].peak_parts["text_encoder outside layers"] == 80 * MIB


def test_me03_a_table_that_stays_on_the_host_is_not() -> None:
    foretold = forecast(encoder_problem(table=80 * MIB, rest=0), STREAMED)
    assert foretold.peak_bytes < 20 * MIB


def test_me03_a_card_without_room_for_it_is_refused_with_the_figure() -> None:
    problem = encoder_problem(table=0, rest=80 * MIB)
    small = replace(problem, budgets=replace(problem.budgets, device=50 * MIB))
    with pytest.raises(CannotFit) as caught:
        select(small)
    refusal: Refusal = caught.value.refusal
    assert refusal.where == "encode_prompt"
    assert refusal.needed_bytes > 80 * MIB
    assert refusal.available_bytes == 50 * MIB


def decode_bytes(plan: Plan) -> int:
    """Device bytes of a decode that are no weights."""
    parts = next(stage.peak_parts for stage in plan.forecast.stages if stage.stage == "decode")
    return parts["activations"] + parts["values between calls"]


def test_me08_a_picture_is_not_charged_as_a_video() -> None:
    """ME-08: Qwen-Image and Wan 2.1 have the same VAE but for names; a picture takes less than a clip of its size."""
    picture = shipped_works.plan("qwen_image", cases.card("h200"))
    clip = shipped_works.plan("wan21_1_3b", cases.card("h200"))
    pixels = [plan.request.height * plan.request.width for plan in (picture, clip)]  # type: ignore[operator]
    assert decode_bytes(picture) / pixels[0] < decode_bytes(clip) / pixels[1]
    assert decode_bytes(picture) < 16e9


def test_me08_tiles_take_less_than_the_whole() -> None:
    whole, tiled = (shipped_works.shipped_work("wan21_1_3b", tiled) for tiled in (False, True))
    peaks = [max(count.call.activation_bytes for count in work.stages[2].calls) for work in (whole, tiled)]
    assert peaks[1] < 0.6 * peaks[0]
