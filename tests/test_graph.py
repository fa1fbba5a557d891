"""The stage graph: order, and every refusal with its file and line (the lines themselves are in tests/broken)."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from framework.errors import ConfigError
from framework.graph import build_graph
from framework.registry import STAGES
from framework.spec import ComponentSpec, ComponentUse, ModelSpec, PipelineSpec, StageSpec


class Step:
    """A stage that reads nothing and writes nothing."""

    inputs: tuple[str, ...] = ()
    outputs: tuple[str, ...] = ()

    def run(self) -> None: ...


class Encode(Step):
    outputs = ("embeds",)
    component_uses = (ComponentUse(component="encoder"),)


class Draw(Step):
    inputs = ("embeds",)
    optional_inputs = ("hint",)
    outputs = ("latents",)


class Hint(Step):
    outputs = ("hint",)


@pytest.fixture(autouse=True)
def kinds(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, cls in {"test-step": Step, "test-encode": Encode, "test-draw": Draw, "test-hint": Hint}.items():
        monkeypatch.setitem(STAGES._loaded, name, cls)
        monkeypatch.setitem(STAGES._shown, name, name)


def pipeline(*stages: StageSpec) -> PipelineSpec:
    return PipelineSpec(
        name="p",
        family=None,
        backend="standard",
        model=ModelSpec(source="x"),
        components={"encoder": ComponentSpec(name="encoder")},
        stages={stage.name: stage for stage in stages},
    )


def refusal(*stages: StageSpec) -> list[tuple[str, str, str]]:
    with pytest.raises(ConfigError) as caught:
        build_graph(pipeline(*stages), lambda key: f"p.yaml:{len(key)}")
    return [(problem.key, problem.reason, problem.where) for problem in caught.value.problems]


def step(name: str, *after: str) -> StageSpec:
    return StageSpec(name=name, kind="test-step", after=after)


ENCODE = StageSpec(name="encode", kind="test-encode")
DRAW = StageSpec(name="draw", kind="test-draw")


def test_values_order_stages_without_a_word_of_the_yaml() -> None:
    graph = build_graph(pipeline(DRAW, ENCODE))
    assert [node.spec.name for node in graph.nodes] == ["encode", "draw"]


def test_an_optional_value_orders_stages_only_where_somebody_writes_it() -> None:
    hint = StageSpec(name="hint", kind="test-hint")
    assert [node.spec.name for node in build_graph(pipeline(DRAW, ENCODE, hint)).nodes] == ["encode", "hint", "draw"]


def test_stages_of_equal_rank_keep_the_order_of_the_yaml() -> None:
    graph = build_graph(pipeline(step("c"), step("a"), step("b", "c")))
    assert [node.spec.name for node in graph.nodes] == ["c", "a", "b"]


def test_uses_come_from_the_stage_class_unless_the_yaml_says_otherwise() -> None:
    own = build_graph(pipeline(ENCODE))
    assert [(stage, use.component) for stage, use in own.timeline()] == [("encode", "encoder")]
    none = build_graph(pipeline(StageSpec(name="encode", kind="test-encode", component_uses=())))
    assert none.used_components() == frozenset()


def test_a_cycle_is_shown_whole() -> None:
    assert refusal(step("a", "c"), step("b", "a"), step("c", "b")) == [
        ("pipeline.stages.a", "stages wait for each other: a -> c -> b -> a", "p.yaml:17")
    ]


def test_a_stage_that_waits_for_itself_is_a_cycle() -> None:
    assert refusal(step("a", "a"))[0][1] == "stages wait for each other: a -> a"


def test_an_unknown_stage_kind_component_and_rename_are_named_together() -> None:
    found = refusal(
        StageSpec(name="a", kind="tset-step"),
        StageSpec(name="b", kind="test-step", component_uses=(ComponentUse(component="encodr"),)),
        StageSpec(name="c", kind="test-encode", outputs={"embed": "e"}),
    )
    assert [key for key, _, _ in found] == [
        "pipeline.stages.a.kind",
        "pipeline.stages.b.component_uses[0].component",
        "pipeline.stages.c.outputs.embed",
    ]
    assert all(where == f"p.yaml:{len(key)}" for key, _, where in found)


def test_an_unknown_stage_in_after_is_named() -> None:
    assert refusal(step("a", "b")) == [("pipeline.stages.a.after[0]", "unknown stage 'b'", "p.yaml:26")]


def test_two_writers_of_one_value_are_named() -> None:
    found = refusal(ENCODE, StageSpec(name="again", kind="test-encode"))
    assert found == [("pipeline.stages.again", "writes 'embeds', which stage 'encode' writes too", "p.yaml:21")]


def test_renaming_lets_two_stages_write_the_same_kind_of_value() -> None:
    again = StageSpec(name="again", kind="test-encode", outputs={"embeds": "more"})
    reader = StageSpec(name="draw", kind="test-draw", inputs={"embeds": "more"})
    assert [node.spec.name for node in build_graph(pipeline(ENCODE, reader, again)).nodes] == [
        "encode",
        "again",
        "draw",
    ]


def test_a_value_nobody_writes_is_named() -> None:
    assert refusal(DRAW) == [("pipeline.stages.draw", "reads 'embeds', which no stage writes", "p.yaml:20")]


@given(st.lists(st.tuples(st.integers(0, 7), st.integers(0, 7)), max_size=20))
def test_any_graph_is_ordered_or_refused_as_a_cycle(edges: list[tuple[int, int]]) -> None:
    after: dict[str, list[str]] = {f"s{number}": [] for number in range(8)}
    for one, other in edges:
        after[f"s{one}"].append(f"s{other}")
    spec = pipeline(*(step(name, *before) for name, before in after.items()))
    try:
        order = [node.spec.name for node in build_graph(spec).nodes]
    except ConfigError as error:
        words = str(error).partition("other: ")[2].split(" -> ")
        assert words[0] == words[-1]
        assert all(later in after[earlier] for earlier, later in pairwise(words))
    else:
        assert all(order.index(before) < order.index(name) for name in after for before in after[name])
