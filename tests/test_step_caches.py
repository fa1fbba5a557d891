"""The table of step caches: complete against diffusers, used for every check, printed in the documentation."""

import dataclasses
from pathlib import Path
from typing import Any

import pytest

from framework.step_caches import ALIASES, CACHES, COUNT, NUMBER, RANGE, SWITCH, TEXT, StepCache, cache_table
from framework.step_caches import read_step_cache as read

PAGE = Path(__file__).parents[1] / "docs" / "numerics.md"
EXAMPLES = {NUMBER: 0.5, COUNT: 2, SWITCH: True, TEXT: "BCHW", RANGE: [100, 800]}
OURS = {"calibrate"}  # prints to the terminal in the middle of a run


def problems(value: Any) -> list[str]:
    return [str(problem) for problem in read(value)[1]]


def test_the_page_has_the_table_as_it_is() -> None:
    _, _, rest = PAGE.read_text(encoding="utf-8").partition("<!-- caches -->\n")
    assert rest.partition("<!-- end of caches -->")[0].strip() == cache_table()


@pytest.mark.parametrize("cache", CACHES.values(), ids=lambda cache: cache.name)
def test_the_options_are_those_of_diffusers_that_text_can_say(cache: Any) -> None:
    import diffusers

    theirs = {field.name for field in dataclasses.fields(getattr(diffusers, cache.config))}
    said = {name for name in theirs if not name.startswith("_") and not name.endswith("_callback")} - OURS
    assert set(cache.options) == said
    assert set(cache.required) <= said
    assert set(cache.defaults) <= said


def test_every_cache_of_diffusers_is_offered_or_refused_by_name() -> None:
    import diffusers

    theirs = {name for name in dir(diffusers) if name.endswith(("CacheConfig", "BroadcastConfig"))}
    ours = {cache.config for cache in CACHES.values()}
    for name in theirs - ours:
        kind = name.removesuffix("Config").lower()
        assert "diffusers" in problems(kind)[0]


@pytest.mark.parametrize("value", [None, "off", False, {}, {"method": "off"}])
def test_off_is_no_cache(value: Any) -> None:
    assert read(value) == (None, [])


def test_a_name_and_a_map_are_one_and_spellings_fold() -> None:
    plain = StepCache(method="first_block")
    assert read("First-Block") == read({"method": "fbcache", "options": None}) == (plain, [])
    chosen, _ = read({"method": "pab", "options": {"spatial_attention_timestep_skip_range": [100, 800]}})
    assert chosen == StepCache(
        method="pyramid_attention", options=(("spatial_attention_timestep_skip_range", (100, 800)),)
    )
    assert str(chosen) == "pyramid_attention (spatial_attention_timestep_skip_range 100-800)"
    assert set(ALIASES.values()) <= set(CACHES)


def test_the_identity_does_not_depend_on_the_order_of_options() -> None:
    one, _ = read({"method": "first_block", "options": {"threshold": 0.1}})
    first, _ = read({"method": "taylorseer", "options": {"max_order": 2, "cache_interval": 3}})
    second, _ = read({"method": "taylorseer", "options": {"cache_interval": 3, "max_order": 2}})
    assert first == second != one


@pytest.mark.parametrize(
    ("value", "line"),
    [
        ("teacache", "diffusers has no TeaCache; use first_block"),
        ("taylor", "unknown step cache 'taylor'; did you mean 'taylorseer'?"),
        ({"options": {"threshold": 1}}, "the key 'method' is required"),
        ("magcache", "magcache needs the option 'mag_ratios', which depends on the model"),
        ({"method": "first_block", "options": {"treshold": 1}}, "no option 'treshold'; did you mean 'threshold'?"),
        ({"method": "first_block", "options": {"threshold": "x"}}, "must be a number, got 'x'"),
        ({"method": "first_block", "options": {"threshold": True}}, "must be a number, got True"),
        ({"method": "taylorseer", "options": {"max_order": 1.5}}, "must be a whole number, got 1.5"),
        ({"method": "fastercache", "options": {"is_guidance_distilled": 1}}, "must be true or false, got 1"),
        ({"method": "pab", "options": {"cross_attention_timestep_skip_range": [1]}}, "must be two numbers, got [1]"),
        ({"method": "taylorseer", "options": {"cache_identifiers": ["a", 1]}}, "must be a list of texts"),
    ],
)
def test_what_cannot_be_had_is_one_line(value: Any, line: str) -> None:
    assert len(problems(value)) == 1
    assert line in problems(value)[0]


@pytest.mark.parametrize("cache", CACHES.values(), ids=lambda cache: cache.name)
def test_values_of_the_stated_kinds_pass(cache: Any) -> None:
    options = {
        name: EXAMPLES.get(kind, ["x"] if "texts" in kind else [1.0, 0.9]) for name, kind in cache.options.items()
    }
    assert problems({"method": cache.name, "options": options}) == []
