"""Where two runs part, and what `verify` makes of it; no run is made."""

from pathlib import Path
from typing import Any

import pytest
import spec_builders

from framework.commands.verify import exit_code, modes_of
from framework.commands.verify_text import describe
from framework.compose import compose
from framework.compose.composer import check, compose_data
from framework.compose.one_mode import with_one_mode
from framework.errors import ConfigError, PlanError, StageError
from framework.spec import BudgetSpec
from framework.verifying.marks import OUTPUT, VALUE, WEIGHT, Mark, Place, first_difference, first_shared_difference
from framework.verifying.trial import Trial
from framework.verifying.verdict import Verdict, changes_since, with_room


def mark(step: int | None, sha: str, kind: str = VALUE, tensor: str = "latents", component: str | None = None) -> Mark:
    return Mark(0, "denoise", step, step or 4, kind, tensor, sha, component)


def trial(**changes: Any) -> Trial:
    return Trial("component-offload", Path("runs/component-offload"), **changes)


def test_the_first_difference_is_that_of_the_hash_or_of_the_course() -> None:
    run = [mark(1, "a"), mark(2, "b"), mark(None, "c")]
    assert first_difference(run, list(run)) is None
    assert first_difference(run, [run[0], mark(2, "x"), mark(None, "y")]) == mark(2, "x")
    assert first_difference(run, run[:2]) == run[2]
    assert first_difference(run[:2], run) == run[2]


def test_the_place_of_a_step_is_what_comes_before_its_end() -> None:
    assert mark(3, "a").place == Place(0, "denoise", 2)
    assert mark(None, "a").place == Place(0, "denoise", 4)
    assert mark(3, "a").where() == "request 1, stage 'denoise', step 3: latents"


def test_what_only_one_run_has_is_passed_over_and_each_call_is_compared_with_its_own() -> None:
    call = [mark(1, "a", WEIGHT, "w", "dit"), mark(1, "b", OUTPUT, "o", "dit")]
    again = [mark(1, "a", WEIGHT, "w", "dit"), mark(1, "c", OUTPUT, "o", "dit")]
    extra = mark(1, "z", WEIGHT, "on the host", "dit")
    assert first_shared_difference([*call, *again], [extra, *call, *again]) == (None, 4)
    assert first_shared_difference([*call, *again], [*call, *call]) == (call[1], 4)


def test_a_difference_counts_more_than_a_failure_and_that_more_than_what_does_not_fit() -> None:
    equal, differs = Verdict(trial()), Verdict(trial(), differs=True)
    refused, failed = Verdict(trial(error=PlanError("big"))), Verdict(trial(error=StageError("bad")))
    unproved = Verdict(trial(modes={"vae": "component-offload"}))
    assert exit_code([equal]) == 0
    assert exit_code([equal, refused]) == 3
    assert exit_code([failed, refused]) == exit_code([unproved, refused]) == 4
    assert exit_code([differs, failed]) == 1


def test_a_component_that_never_came_is_told() -> None:
    moved = trial(modes={"vae": "component-offload", "dit": "resident"}, moved={"vae": 5})
    assert moved.unmoved == ()
    lines = list(describe([Verdict(trial(modes={"vae": "component-offload", "dit": "resident"}))], Path("runs")))
    assert "nothing moved" in lines[0]
    assert "nothing is proved of vae" in lines[1]


def test_one_mode_takes_the_place_of_all_that_a_config_says_of_placement() -> None:
    said = ["residency=low_vram", "component_residency.vae=resident", "layerwise.dit.prefetch=3", "prompt=a", "seed=1"]
    composed = compose_data(said)
    streamed = check(with_one_mode(composed, "layerwise-offload", "verify")).placements
    assert {one.mode for one in streamed.values()} == {"layerwise-offload"}
    knob = streamed["transformer"].prefetch
    assert knob is not None
    assert knob.written == "3"
    assert {one.mode for one in check(with_one_mode(composed, "resident", "verify")).placements.values()} == {
        "resident"
    }
    assert check(composed).placements["vae"].mode == "resident", "the composed config itself is left alone"


def test_the_reference_has_room_on_a_simulated_card_only() -> None:
    spec = compose(["device=sim", "hardware=rtx_3060_12gb", "budget.device=9MiB", "prompt=a"])
    roomy = with_room(spec)
    assert roomy.config["hardware"]["memory_gib"] > 1000 * spec.config["hardware"]["memory_gib"]
    assert roomy.config["hardware"]["name"] == "rtx_3060_12gb"
    assert roomy.budget == BudgetSpec()
    real = spec_builders.run_spec(spec.pipeline, device="cuda")
    assert with_room(real).config == real.config


def test_versions_that_changed_since_a_record_are_named() -> None:
    from framework.outputs.machine import installed_versions

    assert not list(changes_since({"versions": installed_versions()}))
    then = {**installed_versions(), "torch": "1.0"}
    (line,) = changes_since({"versions": then})
    assert line.startswith("since the record: torch 1.0 -> ")


def test_modes_are_named_or_all() -> None:
    assert "resident" not in modes_of("all")
    assert modes_of("Layerwise_Offload,layerwise-offload") == ("layerwise-offload",)
    with pytest.raises(ConfigError, match="names no mode"):
        modes_of(",")
