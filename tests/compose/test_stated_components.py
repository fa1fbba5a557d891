"""Components that are taken away or that nothing uses, and numbers that the environment gives."""

import pytest

from framework.compose import compose
from framework.errors import ConfigError


def test_a_component_taken_away_from_a_stage_that_uses_it_is_refused() -> None:
    with pytest.raises(ConfigError) as caught:
        compose(["pipeline.components.transformer=null"])
    assert str(caught.value) == (
        "(from the command line: pipeline.components.transformer=null): pipeline.components.transformer: null takes "
        "the component away, and stage 'denoise' uses it; write {} for a component without settings"
    )


def test_a_component_taken_away_from_a_whole_pipeline_is_refused() -> None:
    words = ["pipeline=diffusers", "pipeline.model.source=embedded:digits", "+pipeline.components.vae=null"]
    with pytest.raises(ConfigError, match="called as a whole has every component of its checkpoint; remove the line"):
        compose(words)


def test_a_component_taken_away_that_no_stage_uses_is_not_there() -> None:
    assert "foo" not in compose(["+pipeline.components.foo=null"]).placements


def test_a_component_that_no_stage_uses_is_a_note() -> None:
    line = (
        "(from the command line: +pipeline.components.foo.group=dit): pipeline.components.foo: "
        "no effect: no stage uses this component"
    )
    assert line in compose(["+pipeline.components.foo.group=dit"]).notes
    assert line not in compose(["+pipeline.components.foo={group: dit, optional: true}"]).notes
    assert not any("no stage uses" in note for note in compose([]).notes)


def test_a_number_of_the_environment_is_a_number_where_one_is_wanted(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in (("SEED", "7"), ("SCALE", "2.5"), ("NAME", "12")):
        monkeypatch.setenv(name, value)
    words = ["seed=${oc.env:SEED}", "request.guidance_scale=${oc.env:SCALE}", "output.name=${oc.env:NAME}"]
    spec = compose(words)
    assert (spec.requests[0].seeds, spec.requests[0].guidance_scale, spec.output.name) == ((7,), 2.5, "12")
    assert compose(["seed=['${oc.env:SEED}', 8]", "request.num_outputs=2"]).requests[0].seeds == (7, 8)


@pytest.mark.parametrize("value", ["many", "", "true", "7 8"])
def test_a_word_of_the_environment_is_no_number(value: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SEED", value)
    with pytest.raises(ConfigError, match=f"seed: expected a whole number or a list, got text '{value}'"):
        compose(["seed=${oc.env:SEED}"])


@pytest.mark.parametrize(
    ("word", "hint"),
    [("heigth=480", "request.height"), ("height=480", "request.height"), ("num_frame=5", "request.num_frames")],
)
def test_a_request_key_at_the_top_is_led_to_its_place(word: str, hint: str) -> None:
    with pytest.raises(ConfigError, match=f"unknown key '.*'; did you mean '{hint}'\\?$"):
        compose([word])


def test_a_key_of_the_top_stays_the_nearest() -> None:
    with pytest.raises(ConfigError, match=r"did you mean 'seed'\?$"):
        compose(["seeed=3"])


@pytest.mark.parametrize("shift", ["0", "-1.5"])
def test_a_flow_shift_is_above_zero(shift: str) -> None:
    with pytest.raises(ConfigError, match=f"pipeline.scheduler.flow_shift: must be above 0, got {shift}$"):
        compose([f"pipeline.scheduler.flow_shift={shift}"])
