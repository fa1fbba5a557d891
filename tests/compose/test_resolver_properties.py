"""Properties of the resolver and of the normaliser, over generated settings."""

from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from resolver_cases import WAN

from framework.compose.knobs import KNOBS
from framework.compose.residency import Resolution, resolve
from framework.compose.sources import Entry, MachineFacts, Sources
from framework.compose.spellings import read_mode, read_names, read_pairs
from framework.errors import ConfigError, Origin
from framework.registry import MODES

FEW = settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow])
SELECTORS = st.sampled_from([*WAN, "dit", "text_encoder", "image_encoder", "vae", "all", "Transformer-2"])
AMOUNTS = st.sampled_from([0, 1, 2, 0.5, 1.5, "25%", "all", 100])
POLICIES = st.sampled_from(["leading", "strided"])
FLAGS = [
    "dit_cpu_offload",
    "text_encoder_cpu_offload",
    "vae_cpu_offload",
    "dit_layerwise_offload",
    "use_fsdp_inference",
]
LISTS = ["cpu_offload_components", "layerwise_offload_components"]

SETTING = st.one_of(
    st.tuples(SELECTORS.map(lambda name: f"component_residency.{name}"), st.sampled_from(MODES)),
    st.tuples(SELECTORS.map(lambda name: f"layerwise.{name}.prefetch"), AMOUNTS),
    st.tuples(SELECTORS.map(lambda name: f"layerwise.{name}.resident"), AMOUNTS | st.just("1GiB")),
    st.tuples(SELECTORS.map(lambda name: f"layerwise.{name}.policy"), POLICIES),
    st.tuples(st.sampled_from(FLAGS), st.booleans()),
    st.tuples(st.sampled_from(LISTS), st.lists(st.sampled_from([*WAN, "dit", "vae"]), max_size=3)),
    st.tuples(st.just("dit_offload_prefetch_size"), AMOUNTS),
    st.tuples(SELECTORS.map(lambda name: f"layerwise_resident_layers.{name}"), AMOUNTS),
)
LOWER = st.lists(st.tuples(SELECTORS, st.sampled_from(MODES)), max_size=3)
MACHINES = st.sampled_from([None, *(MachineFacts(kind=kind) for kind in ("cpu", "cuda", "mps", "sim"))])
MODE = st.sampled_from([None, "manual", "speed", "memory"])


def build(
    user: list[tuple[str, Any]], preset: list[tuple[str, str]], pipeline: list[tuple[str, str]], mode: str | None
) -> Sources:
    def place(layer: str, items: list[tuple[str, Any]], prefix: str = "") -> tuple[Entry, ...]:
        return tuple(
            Entry(prefix + key, value, Origin(layer, f"{layer}.yaml:{line}"))
            for line, (key, value) in enumerate(items, start=1)
        )

    return Sources(
        user=place("user", user),
        preset=place("preset", preset, "residency.modes."),
        pipeline=place("pipeline", pipeline, "pipeline.defaults.residency."),
        performance_mode=None if mode is None else Entry("performance_mode", mode, Origin("user", "user.yaml:99")),
        hints={"dit_layerwise_modes": ["memory"], "auto_prefetch": 2},
    )


def outcome(sources: Sources, machine: MachineFacts | None) -> Resolution | set[str]:
    """The resolution, or the set of problems as text."""
    try:
        return resolve(sources, WAN, machine)
    except ConfigError as error:
        return {str(problem) for problem in error.problems}


@FEW
@given(st.lists(SETTING, max_size=5), LOWER, LOWER, MODE, MACHINES)
def test_every_value_of_a_placement_has_exactly_one_winning_reason(
    user: list[Any], preset: list[Any], pipeline: list[Any], mode: str | None, machine: MachineFacts | None
) -> None:
    found = outcome(build(user, preset, pipeline, mode), machine)
    for placement in found.placements.values() if isinstance(found, Resolution) else ():
        values = {"mode": placement.mode}
        if placement.prefetch and placement.resident and placement.policy and placement.lifetime:
            values |= {"prefetch": placement.prefetch.written, "resident": placement.resident.written}
            values |= {"policy": placement.policy, "lifetime": placement.lifetime}
        assert (placement.mode == "layerwise-offload") == (set(values) == {"mode", *KNOBS})
        won = [(reason.subject, reason.value) for reason in placement.reasons if reason.won]
        assert sorted(won) == sorted(values.items())
        assert all(reason.note for reason in placement.reasons if not reason.won)
        assert all(reason.origin.where for reason in placement.reasons)


@FEW
@given(st.data(), st.lists(SETTING, max_size=5), LOWER, LOWER, MODE, MACHINES)
def test_the_order_inside_a_layer_does_not_matter(
    data: Any, user: list[Any], preset: list[Any], pipeline: list[Any], mode: str | None, machine: MachineFacts | None
) -> None:
    sources = build(user, preset, pipeline, mode)
    shuffled = Sources(
        user=tuple(data.draw(st.permutations(sources.user))),
        preset=tuple(data.draw(st.permutations(sources.preset))),
        pipeline=tuple(data.draw(st.permutations(sources.pipeline))),
        performance_mode=sources.performance_mode,
        hints=sources.hints,
    )
    assert outcome(sources, machine) == outcome(shuffled, machine)


@FEW
@given(st.lists(SETTING, max_size=5), LOWER, LOWER, MODE)
def test_resolving_what_was_resolved_changes_nothing(
    user: list[Any], preset: list[Any], pipeline: list[Any], mode: str | None
) -> None:
    found = outcome(build(user, preset, pipeline, mode), None)
    if not isinstance(found, Resolution):
        return
    again: list[tuple[str, Any]] = []
    for name, placement in found.placements.items():
        again.append((f"component_residency.{name}", placement.mode))
        knobs = {"prefetch": placement.prefetch, "resident": placement.resident}
        again += [(f"layerwise.{name}.{knob}", amount.written) for knob, amount in knobs.items() if amount]
        again += [(f"layerwise.{name}.policy", placement.policy)] if placement.policy else []
    second = outcome(build(again, [], [], None), None)
    assert isinstance(second, Resolution)
    for name, placement in found.placements.items():
        other = second.placements[name]
        assert (other.mode, other.prefetch, other.resident) == (placement.mode, placement.prefetch, placement.resident)
        assert (other.policy, other.lifetime) == (placement.policy, placement.lifetime)


@FEW
@given(st.lists(st.text(max_size=12), max_size=4))
def test_normalising_names_twice_is_normalising_once(texts: list[str]) -> None:
    try:
        once = read_names(texts)
    except ValueError:
        return
    assert read_names(once) == once
    if not any(name.startswith("[") for name in once):
        assert read_names(",".join(once)) == once


@FEW
@given(st.dictionaries(st.text(max_size=8), st.sampled_from([*MODES, "Layerwise_Offload ", " RESIDENT"]), max_size=4))
def test_normalising_pairs_twice_is_normalising_once(pairs: dict[str, str]) -> None:
    try:
        once = read_pairs(pairs, "COMPONENT=MODE")
    except ValueError:
        return
    assert read_pairs(once, "COMPONENT=MODE") == once
    assert all(read_mode(read_mode(mode)) == read_mode(mode) for _, mode in once)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=10),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=6), inner, max_size=3),
    max_leaves=6,
)
KEYS = st.sampled_from(
    [
        *FLAGS,
        *LISTS,
        *("component_residency", "component_residency.vae", "residency.modes"),
        *("layerwise", "layerwise.", "layerwise.dit", "layerwise.dit.prefetch"),
        *("layerwise_prefetch_size", "dit_offload_prefetch_size", "layerwise_residency_policy"),
        *("mode", "warmup_mode", "pin_cpu_memory", "offload_during_compile", "", "."),
    ]
)


@settings(max_examples=200, deadline=None)
@given(st.lists(st.tuples(KEYS | st.text(max_size=8), JSON.filter(lambda value: value is not None)), max_size=3))
def test_whatever_is_written_is_resolved_or_refused_with_a_clear_error(user: list[tuple[str, Any]]) -> None:
    found = outcome(build(user, [], [], None), None)
    assert isinstance(found, Resolution) or all(found)
