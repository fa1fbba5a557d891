"""When uses begin and end, and what the strategies are told, with modules of one weight and a strategy that notes."""

from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch import nn

from framework.errors import StageError
from framework.graph import Graph, Node
from framework.memory.resources import make_resources
from framework.platforms import make_platform
from framework.registry import STRATEGIES
from framework.runtime.events import EventBus, Note, UseFinished, UseStarted
from framework.runtime.placed import Placed
from framework.runtime.placing import effective_placements
from framework.runtime.residency import ResidencyManager
from framework.runtime.store import ComponentStore
from framework.spec import ComponentUse, Placement, StageSpec

CALLS: list[str] = []


class Noted:
    """Notes what it is asked to do; `fail_in` names a method that raises."""

    fail_in: str | None = None
    prefetches = True

    def __init__(self, component: str, module: nn.Module, placement: Placement, device: torch.device) -> None:
        self.component = component

    def prepare(self, dtype: torch.dtype | None = None) -> None:
        self._note("prepare", dtype)

    def wait(self) -> None:
        self._note("wait")

    def finish_use(self) -> None:
        self._note("finish_use")

    def finish_request(self, preferred: bool) -> None:
        self._note("finish_request", preferred or None)

    def prefetch(self, beside_active: bool) -> bool:
        self._note("prefetch", "beside" if beside_active else None)
        return self.prefetches

    def _note(self, method: str, detail: Any = None) -> None:
        CALLS.append(f"{self.component}.{method}" + (f" {detail}" if detail else ""))
        if self.fail_in == f"{self.component}.{method}":
            raise RuntimeError("planted")


@pytest.fixture(autouse=True)
def noted_is_a_mode(monkeypatch: pytest.MonkeyPatch) -> None:
    """For these tests only: what one test registers must not be a mode in another's messages."""
    monkeypatch.setitem(STRATEGIES._loaded, "noted", Noted)
    monkeypatch.setitem(STRATEGIES._shown, "noted", "noted")


@pytest.fixture(autouse=True)
def _fresh() -> Iterator[None]:
    CALLS.clear()
    yield
    Noted.fail_in = None


def use(component: str, phase: str | None = None, at_entry: bool = True, **options: Any) -> ComponentUse:
    return ComponentUse(component=component, phase=phase, start_at_stage_entry=at_entry, **options)


def node(name: str, *uses: ComponentUse) -> Node:
    spec = StageSpec(name=name, kind="test")
    return Node(spec=spec, stage_class=None, reads={}, optional_reads={}, writes={}, component_uses=uses)


class Bench:
    """A store of one-weight modules, a manager and the events it emits."""

    def __init__(
        self,
        *nodes: Node,
        names: tuple[str, ...] = ("a", "b", "c"),
        missing: tuple[str, ...] = (),
        rings: dict[str, str] | None = None,
    ) -> None:
        self.events: list[Any] = []
        self.modules = {name: nn.Linear(1, 1) for name in names}
        self.store = ComponentStore(
            pipeline_class=None,
            components={**self.modules, **dict.fromkeys(missing)},
            options={},
            managed=frozenset(self.modules),
            device=torch.device("cpu"),
            identities={},
        )
        placements = {name: Placement(component=name, group=None, mode="noted") for name in (*names, *missing)}
        placed = Placed(placements, make_resources(make_platform("cpu"), ring_names=rings))
        for name, module in self.modules.items():
            placed.strategy(name, module)
        self.manager = ResidencyManager(self.store, placed, EventBus(self.events.append))
        self.graph = Graph(nodes)
        self.manager.begin_request(self.graph, 0)

    def call(self, name: str) -> None:
        self.modules[name](torch.zeros(1))

    def log(self) -> list[str]:
        marks = {UseStarted: "+", UseFinished: "-"}
        shown = [e for e in self.events if type(e) in marks]
        return [f"{marks[type(e)]}{e.stage}.{e.component}" + (f".{e.phase}" if e.phase else "") for e in shown]


def test_an_entry_started_use_lasts_for_its_stage() -> None:
    bench = Bench(node("one", use("a")), node("two", use("b")))
    bench.manager.begin_stage(0)
    assert bench.manager.open_uses() == (("a", None),)
    bench.call("a")
    bench.manager.end_stage()
    bench.manager.begin_stage(1)
    bench.manager.end_stage()
    bench.manager.finish_request()
    assert bench.log() == ["+one.a", "-one.a", "+two.b", "-two.b"]
    assert CALLS == [
        "a.prepare",
        "a.wait",
        "a.finish_use",
        "b.prefetch",
        "b.prepare",
        "b.wait",
        "b.finish_use",
        "a.finish_request",
        "b.finish_request",
    ]


def test_a_call_started_use_begins_at_the_first_call_and_ends_with_the_block() -> None:
    bench = Bench(node("one", use("a", at_entry=False)))
    bench.manager.begin_stage(0)
    with bench.manager.uses_at_call():
        assert bench.manager.open_uses() == ()
        bench.call("a")
        bench.call("a")
        assert bench.manager.open_uses() == (("a", None),)
    assert bench.manager.open_uses() == ()
    assert bench.log() == ["+one.a", "-one.a"]


def test_the_next_phase_ends_the_one_before_it() -> None:
    bench = Bench(node("one", use("a", "high", at_entry=False), use("b", "low", at_entry=False)))
    bench.manager.begin_stage(0)
    with bench.manager.uses_at_call():
        for name in "aabb":
            bench.call(name)
    assert bench.log() == ["+one.a.high", "-one.a.high", "+one.b.low", "-one.b.low"]


def test_uses_without_phases_overlap() -> None:
    bench = Bench(node("one", use("a", at_entry=False), use("b", at_entry=False)))
    bench.manager.begin_stage(0)
    with bench.manager.uses_at_call():
        for name in "abab":
            bench.call(name)
        assert set(bench.manager.open_uses()) == {("a", None), ("b", None)}
    assert CALLS.count("a.prepare") == CALLS.count("b.prepare") == 1


def test_adjacent_stages_with_the_same_use_share_one_interval() -> None:
    bench = Bench(node("one", use("a")), node("two", use("a")), node("three", use("b")))
    for index in range(3):
        bench.manager.begin_stage(index)
        bench.manager.end_stage()
    assert bench.log() == ["+one.a", "-two.a", "+three.b", "-three.b"]


def test_a_shared_interval_ends_even_where_the_next_stage_never_calls() -> None:
    bench = Bench(node("one", use("a")), node("two", use("a", at_entry=False)))
    for index in range(2):
        bench.manager.begin_stage(index)
        bench.manager.end_stage()
    assert bench.log() == ["+one.a", "-two.a"]


def test_another_phase_of_the_same_component_is_another_interval() -> None:
    bench = Bench(node("one", use("a", "encode")), node("two", use("a", "decode")))
    for index in range(2):
        bench.manager.begin_stage(index)
        bench.manager.end_stage()
    assert bench.log() == ["+one.a.encode", "-one.a.encode", "+two.a.decode", "-two.a.decode"]


def test_nested_blocks_share_one_use() -> None:
    wanted = use("a", at_entry=False)
    bench = Bench(node("one", wanted))
    bench.manager.begin_stage(0)
    with bench.manager.use(wanted), bench.manager.use(wanted):
        bench.call("a")
    assert bench.log() == ["+one.a", "-one.a"]


def test_another_dtype_prepares_again_and_a_declared_one_is_passed_on() -> None:
    wanted = use("a", target_dtype="bfloat16")
    bench = Bench(node("one", wanted))
    bench.manager.begin_stage(0)
    with bench.manager.use(wanted, torch.float32):
        assert CALLS == ["a.prepare torch.bfloat16", "a.wait", "a.prepare torch.float32", "a.wait"]


def test_a_call_outside_a_declared_use_is_refused() -> None:
    bench = Bench(node("one", use("a")))
    bench.manager.begin_stage(0)
    with pytest.raises(StageError, match=r"stage 'one' calls component 'b' outside a use it declared"):
        bench.call("b")


def test_after_the_request_nobody_listens_to_calls() -> None:
    bench = Bench(node("one", use("a")))
    bench.manager.finish_request()
    bench.call("b")
    assert CALLS == []


def test_the_next_use_is_prefetched_between_uses_only() -> None:
    bench = Bench(node("one", use("a")), node("two", use("b")), node("three", use("c")))
    bench.manager.begin_stage(0)
    assert CALLS == ["a.prepare", "a.wait"]
    bench.manager.end_stage()
    assert CALLS[2:] == ["a.finish_use", "b.prefetch"]


def test_who_shares_the_ring_of_the_one_in_use_is_prefetched_beside_it() -> None:
    bench = Bench(
        node("one", use("a", "high", at_entry=False), use("b", "low", at_entry=False)), rings={"a": "r", "b": "r"}
    )
    bench.manager.begin_stage(0)
    with bench.manager.uses_at_call():
        bench.call("a")
        assert CALLS == ["a.prepare", "a.wait", "b.prefetch beside"]
        bench.call("b")
    assert CALLS[3:] == ["a.finish_use", "b.prepare", "b.wait", "b.finish_use"]


def test_what_was_prefetched_for_a_stage_that_does_not_call_it_goes_with_the_stage() -> None:
    bench = Bench(
        node("one", use("a", "high", at_entry=False), use("b", "low", at_entry=False)), rings={"a": "r", "b": "r"}
    )
    bench.manager.begin_stage(0)
    with bench.manager.uses_at_call():
        bench.call("a")
    bench.manager.end_stage()
    assert CALLS[-2:] == ["a.finish_use", "b.finish_use"]


def test_what_was_prefetched_and_is_passed_over_goes_before_the_next_use() -> None:
    bench = Bench(node("one", use("a")), node("two", use("b", at_entry=False), use("c", at_entry=False)))
    bench.manager.begin_stage(0)
    bench.manager.end_stage()
    bench.manager.begin_stage(1)
    CALLS.clear()
    with bench.manager.uses_at_call():
        bench.call("c")
    assert CALLS == ["b.finish_use", "c.prepare", "c.wait", "c.finish_use"]


def test_the_order_of_the_last_complete_request_is_expected_again() -> None:
    bench = Bench(node("one", use("a"), use("c", at_entry=False), use("b", at_entry=False)))
    fetched = []
    for request in range(2):
        bench.manager.begin_request(bench.graph, request)
        for component in "abc":
            bench.manager._node = bench.graph.nodes[0]
            with bench.manager.use(use(component, at_entry=False)):
                pass
            fetched += [call for call in CALLS if "prefetch" in call]
            CALLS.clear()
        bench.manager._num_ended = 1
        bench.manager.finish_request()
    assert fetched == ["c.prefetch", "b.prefetch", "c.prefetch"]


def test_a_refused_prefetch_is_offered_again_at_the_next_chance(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Noted, "prefetches", False)
    bench = Bench(node("one", use("a", at_entry=False), use("b", at_entry=False)), node("two", use("c")))
    bench.manager.begin_stage(0)
    for component in ("a", "b"):
        with bench.manager.use(use(component, at_entry=False)):
            pass
    assert CALLS.count("b.prefetch") == CALLS.count("c.prefetch") == 1


def test_a_use_that_forbids_prefetch_is_left_alone() -> None:
    bench = Bench(node("one", use("a")), node("two", use("b", allow_prefetch=False)))
    run_stage(bench)
    assert CALLS == ["a.prepare", "a.wait", "a.finish_use"]


def finish_all(bench: Bench, warmup: bool) -> list[str]:
    bench.manager.begin_request(bench.graph, 0, warmup)
    for index in range(len(bench.graph.nodes)):
        bench.manager.begin_stage(index)
        bench.manager.end_stage()
    CALLS.clear()
    bench.manager.finish_request()
    return CALLS


def test_preferred_uses_come_back_after_a_warmup_only() -> None:
    bench = Bench(node("one", use("a")), node("two", use("b", preferred_ready_after_request=True)))
    assert finish_all(bench, warmup=True) == ["a.finish_request", "b.finish_request True"]
    assert finish_all(bench, warmup=False) == ["a.finish_request", "b.finish_request"]


def test_where_no_use_is_flagged_the_first_is_preferred_after_a_warmup() -> None:
    bench = Bench(node("one", use("a")), node("two", use("b")))
    assert finish_all(bench, warmup=True) == ["a.finish_request True", "b.finish_request"]


def test_a_single_transformer_keeps_to_its_mode_after_a_warmup() -> None:
    wanted = use("transformer", preferred_ready_after_request=True)
    alone = Bench(node("one", wanted), names=("transformer",))
    assert finish_all(alone, warmup=True) == ["transformer.finish_request"]
    beside = Bench(node("one", wanted), names=("transformer", "transformer_2"))
    assert finish_all(beside, warmup=True) == ["transformer.finish_request True"]


def test_what_is_kept_after_a_warmup_stays_until_the_first_real_request_has_ended() -> None:
    bench = Bench(node("one", use("a")), node("two", use("b", keep_ready_after_warmup=True)))
    finish_all(bench, warmup=True)
    assert CALLS == ["a.finish_request True"]
    assert finish_all(bench, warmup=False) == ["a.finish_request", "b.finish_request"]


def test_another_instance_takes_the_place_of_one_in_use() -> None:
    bench = Bench(node("one", use("a")))
    bench.manager.begin_stage(0)
    bench.manager.supply("a", nn.Linear(1, 1))
    assert CALLS == ["a.prepare", "a.wait", "a.finish_use", "a.finish_request", "a.prepare", "a.wait"]
    assert not hasattr(bench.modules["a"], "_hf_hook")
    bench.store.module("a")(torch.zeros(1))
    bench.manager.end_stage()
    assert CALLS[-1] == "a.finish_use"


def test_a_component_may_come_when_its_stage_runs() -> None:
    bench = Bench(node("one", use("late", at_entry=False)), names=("a",), missing=("late",))
    bench.manager.begin_stage(0)
    module = nn.Linear(1, 1)
    bench.manager.supply("late", module)
    with bench.manager.uses_at_call():
        module(torch.zeros(1))
    assert CALLS == ["late.prepare", "late.wait", "late.finish_use"]


def test_tensors_that_other_code_moved_are_found_after_the_stage(monkeypatch: pytest.MonkeyPatch) -> None:
    bench = Bench(node("one", use("a")))
    monkeypatch.setattr(Noted, "misplaced", lambda self: ["weight"], raising=False)
    bench.manager.begin_stage(0)
    with pytest.raises(StageError, match=r"after stage 'one' component 'a' \(noted\) is not where its plan has it: we"):
        bench.manager.end_stage()


def run_stage(bench: Bench) -> None:
    bench.manager.begin_stage(0)
    bench.manager.end_stage()


@pytest.mark.parametrize("method", ["prepare", "wait", "finish_use"])
def test_a_failing_strategy_leaves_nothing_open(method: str) -> None:
    bench = Bench(node("one", use("a"), use("b")))
    Noted.fail_in = f"b.{method}"
    with pytest.raises(RuntimeError, match="planted"):
        run_stage(bench)
    Noted.fail_in = None
    bench.manager.finish_request()
    assert bench.manager.open_uses() == ()
    assert "a.finish_use" in CALLS
    assert {"a.finish_request", "b.finish_request"} <= set(CALLS)


def test_every_component_is_made_idle_before_the_first_error_is_raised() -> None:
    bench = Bench(node("one", use("a"), use("b")))
    bench.manager.begin_stage(0)
    Noted.fail_in = "b.finish_use"
    with pytest.raises(RuntimeError, match="planted"):
        bench.manager.finish_request()
    assert {"a.finish_use", "a.finish_request", "b.finish_request"} <= set(CALLS)


def fail_inside(bench: Bench, wanted: ComponentUse) -> None:
    with bench.manager.use(wanted):
        CALLS.clear()
        raise KeyError


def test_nothing_is_prefetched_while_a_failure_unwinds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Noted, "prefetches", False)  # so that the end of the use would ask again
    wanted = use("a", at_entry=False)
    bench = Bench(node("one", wanted), node("two", use("c", memory_intensive=True, allow_prefetch=True)))
    bench.manager.begin_stage(0)
    with pytest.raises(KeyError):
        fail_inside(bench, wanted)
    assert CALLS == ["a.finish_use"]


def test_on_the_cpu_all_is_resident_and_one_line_says_so() -> None:
    bench = Bench()
    placements = {
        "a": Placement(component="a", group=None, mode="layerwise-offload"),
        "b": Placement(component="b", group=None, mode="component-offload"),
    }
    chosen = effective_placements(placements, frozenset(bench.modules), "cpu", EventBus(bench.events.append))
    assert {placement.mode for placement in chosen.values()} == {"resident"}
    assert bench.events == [
        Note("on the CPU every component is resident; no effect for a (layerwise-offload), b (component-offload)")
    ]


def test_what_a_warmup_left_ready_and_nobody_used_is_idle_after_the_first_request() -> None:
    bench = Bench(node("one", use("a", at_entry=False)))
    bench.manager.begin_request(bench.graph, 0, warmup=True)
    bench.manager.begin_stage(0)
    with bench.manager.uses_at_call():
        bench.call("a")
    bench.manager.end_stage()
    bench.manager.finish_request()
    assert CALLS[-1] == "a.finish_request True"
    bench.manager.begin_request(bench.graph, 1)
    bench.manager.begin_stage(0)
    bench.manager.end_stage()
    bench.manager.finish_request()
    assert CALLS[-1] == "a.finish_request"
    assert CALLS.count("a.prepare") == 1


def test_nothing_stays_ready_that_the_measured_peak_leaves_no_room_for(monkeypatch: pytest.MonkeyPatch) -> None:
    bench = Bench(node("one", use("a")), node("two", use("b", keep_ready_after_warmup=True)))
    monkeypatch.setattr(Placed, "fitting_beside_a_request", lambda placed, components: frozenset())
    assert finish_all(bench, warmup=True) == ["a.finish_request", "b.finish_request"]
