"""Cases of long-lived processes and tight cards as whole runs: LI-03, LI-05, ME-05, ME-09."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from framework.cli import main
from framework.platforms.sim.backend import install
from framework.platforms.sim.testing import assert_idle
from framework.platforms.sim.world import World, start
from framework.runtime import events

MODES = ("resident", "component-offload", "layerwise-offload")
EACH = [pytest.param(mode, marks=() if mode == MODES[2] else pytest.mark.slow) for mode in MODES]
QUICK = ["seed=3", "request.num_inference_steps=3", "output.sheet=false", "output.report=false"]


def run(root: Path, name: str, *words: str) -> int:
    return main(["run", "--quiet", f"output.root={root}", f"output.name={name}", *QUICK, *words])


def record(folder: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((folder / "record.json").read_text(encoding="utf-8"))
    return found


def frames(folder: Path) -> list[list[str]]:
    return [[output["frames_sha256"] for output in request["outputs"]] for request in record(folder)["requests"]]


def listen(patch: pytest.MonkeyPatch, hear: Callable[[Any], None]) -> None:
    plain = events.EventBus.emit

    def emit(bus: events.EventBus, event: Any) -> None:
        plain(bus, event)
        hear(event)

    patch.setattr(events.EventBus, "emit", emit)


@pytest.fixture(scope="module")
def reference(one_thread: None, tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("reference")
    assert run(root, "run", "prompt=a three", "device=cpu") == 0
    return root / "run"


@pytest.fixture
def world(one_thread: None) -> World:
    install()
    return start(World())


def break_off(patch: pytest.MonkeyPatch, error: type[BaseException]) -> None:
    """Raise inside the second block of the third step, when the copy of a later layer is on its way."""
    from diffusers.models.transformers.transformer_wan import WanTransformerBlock

    plain, calls = WanTransformerBlock.forward, [-(10**6)]

    def hear(event: Any) -> None:
        if isinstance(event, events.StepDone) and event.step == 2:
            calls[0] = 0

    def forward(self: Any, *args: Any, **kwargs: Any) -> Any:
        calls[0] += 1
        if calls[0] == 2:
            raise error("in a block")
        return plain(self, *args, **kwargs)

    listen(patch, hear)
    patch.setattr(WanTransformerBlock, "forward", forward)


@pytest.mark.parametrize("mode", EACH)
@pytest.mark.parametrize("error", [KeyboardInterrupt, pytest.param(ValueError, marks=pytest.mark.slow)])
def test_li03_a_run_broken_off_in_a_block_leaves_the_process_as_it_was(
    mode: str, error: type[BaseException], world: World, reference: Path, tmp_path: Path
) -> None:
    words = ["prompt=a three", "device=sim", f"component_residency.all={mode}"]
    with pytest.MonkeyPatch.context() as patch:
        break_off(patch, error)
        assert run(tmp_path, "broken", *words) == (130 if error is KeyboardInterrupt else 4)
    assert_idle(world)
    assert main(["run", "--quiet", "--resume", str(tmp_path / "broken")]) == 0
    assert frames(tmp_path / "broken") == frames(reference)
    assert_idle(world)


def test_li05_a_warm_up_costs_the_first_request_nothing_and_leaves_nothing(
    reference: Path, one_thread: None, tmp_path: Path
) -> None:
    words = ["prompt=a three", "device=sim", "component_residency.all=component-offload"]
    keeps = ["checkpoint.every_steps=1", "checkpoint.stages=all", "output.keep_artifacts=true"]
    assert run(tmp_path, "warm", *words, *keeps, "warmup=request") == 0
    assert run(tmp_path, "cold", *words, "warmup=false") == 0
    warm, cold = record(tmp_path / "warm"), record(tmp_path / "cold")
    assert frames(tmp_path / "warm") == frames(tmp_path / "cold") == frames(reference)
    peaks = {one["requests"][0]["memory"]["device_peak_bytes"] for one in (warm, cold)}
    assert len(peaks) == 1
    assert sum(note.startswith("warm-up") for note in warm["plan"]["notes"]) == 2
    assert not any(note.startswith("warm-up") for note in cold["plan"]["notes"])
    assert not any("prompt cache" in note for note in warm["plan"]["notes"])
    assert list(warm["requests"][0]["timings"]["stages"]) == list(cold["requests"][0]["timings"]["stages"])
    steps = [entry["step"] for entry in warm["requests"][0]["artifacts"] if entry["step"] is not None]
    assert steps == [1, 2]


@pytest.mark.parametrize(
    ("mode", "number", "steps"),
    [
        ("layerwise-offload", 3, 1),
        *(pytest.param(mode, 20, 10, marks=pytest.mark.slow) for mode in MODES),
    ],
)
def test_me05_memory_is_flat_after_the_second_request(
    mode: str, number: int, steps: int, world: World, tmp_path: Path
) -> None:
    lines = [json.dumps({"prompt": f"a {index % 10}", "seed": index}) for index in range(number)]
    (tmp_path / "requests.jsonl").write_text("\n".join(lines), encoding="utf-8")
    held: list[tuple[int, int]] = []

    def hear(event: Any) -> None:
        if isinstance(event, events.RequestFinished):
            held.append((world.devices[0].ledger.live_bytes, world.pinned.live_bytes))

    with pytest.MonkeyPatch.context() as patch:
        listen(patch, hear)
        words = [f"requests=@{tmp_path / 'requests.jsonl'}", f"component_residency.all={mode}", "device=sim"]
        assert run(tmp_path, "many", *words, f"request.num_inference_steps={steps}") == 0
    memory = [request["memory"] for request in record(tmp_path / "many")["requests"]]
    assert len({entry["device_peak_bytes"] for entry in memory[1:]}) == 1
    assert len(set(held[1:])) == 1
    assert_idle(world)


@pytest.mark.parametrize("mode", EACH)
def test_me09_what_cannot_fit_is_refused_before_loading_with_what_would_help(
    mode: str, world: World, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["prompt=a three", "device=sim", f"component_residency.all={mode}", "budget.device=100KiB"]
    assert run(tmp_path, "tight", *words) == 3
    error = capsys.readouterr().err
    assert "MiB" in error or "bytes held of 102400" in error
    assert "budget.device" in error
    assert "component_residency." in error
    assert_idle(world)


def test_me09_a_failure_in_the_loop_says_stage_step_component_layer_and_ledger(
    world: World, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def hear(event: Any) -> None:
        if isinstance(event, events.StepDone) and event.step == 2:
            world.faults.fail_allocation(60)

    with pytest.MonkeyPatch.context() as patch:
        listen(patch, hear)
        words = ["prompt=a three", "device=sim", "component_residency.all=layerwise-offload", "recover=off"]
        assert run(tmp_path, "failed", *words) == 4
    lines = capsys.readouterr().err.strip().splitlines()
    assert lines[0].startswith("stage 'denoise' failed in step 3 of 3 in component 'transformer_2', layer '")
    assert lines[1].startswith("device memory: ")
    assert any(line.startswith("  transformer_2 (layerwise-offload, in use): ") for line in lines)
    assert any(line.startswith("to change: ") for line in lines)
    assert lines[-1] == f"to go on: framework run --resume {tmp_path / 'failed'}"
    assert any(line == f"log: {tmp_path / 'failed' / 'log.txt'}" for line in lines)
