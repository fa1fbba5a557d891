"""Runs that are killed at random points and resumed: equal frames, and nothing done twice that had been kept.

Children are forked after the imports, so that a kill costs no more than the part of a run that it leaves.
"""

import json
import os
import random
import signal
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import torch

from framework.artifacts import files as artifacts
from framework.artifacts.files import About, find_artifacts
from framework.cli import main
from framework.runtime import events

NUM_STEPS = 6
LOOP, ARTIFACT, ANYWHERE = "in the loop", "in an artifact", "anywhere"
DEFAULT = ((LOOP, "cpu"), (LOOP, "sim"), (ARTIFACT, "cpu"), (ANYWHERE, "cpu"))
MORE = (*[(LOOP, "cpu")] * 8, *[(LOOP, "sim")] * 3, *[(ARTIFACT, "cpu")] * 3, *[(ARTIFACT, "sim")] * 2,
        *[(ANYWHERE, "cpu")] * 7, *[(ANYWHERE, "sim")] * 3)  # fmt: skip
KILLS = [pytest.param(seed, *kind, id=f"{seed}-{kind[0]}-{kind[1]}") for seed, kind in enumerate(DEFAULT)] + [
    pytest.param(seed, *kind, marks=pytest.mark.slow, id=f"{seed}-{kind[0]}-{kind[1]}")
    for seed, kind in enumerate(MORE, len(DEFAULT))
]


@dataclass
class Heard:
    """What one run told, by listening to every bus."""

    events: list[Any] = field(default_factory=list)

    def of(self, kind: type) -> list[Any]:
        return [event for event in self.events if isinstance(event, kind)]


def listen(patch: pytest.MonkeyPatch, hear: Callable[[Any], None]) -> None:
    """Let `hear` have every event before any sink has it."""
    plain = events.EventBus.emit

    def emit(bus: events.EventBus, event: Any) -> None:
        hear(event)
        plain(bus, event)

    patch.setattr(events.EventBus, "emit", emit)


def words(root: Path, name: str, device: str, every: int) -> list[str]:
    own = [f"device={device}", "seed=3", "prompt=a three", f"request.num_inference_steps={NUM_STEPS}"]
    quick = ["output.sheet=false", "output.report=false"]
    return [
        "run",
        "--quiet",
        f"output.root={root}",
        f"output.name={name}",
        f"checkpoint.every_steps={every}",
        *own,
        *quick,
    ]


def frames_of(folder: Path) -> list[str]:
    record = json.loads((folder / "record.json").read_text(encoding="utf-8"))
    return [output["frames_sha256"] for request in record["requests"] for output in request["outputs"]]


@pytest.fixture(scope="module")
def references(
    one_thread: None, tmp_path_factory: pytest.TempPathFactory
) -> Callable[[str], tuple[list[str], int, int]]:
    """Return (hashes of the frames, number of events, number of calls of blocks) of a run that nobody disturbs."""
    made: dict[str, tuple[list[str], int, int]] = {}

    def reference(device: str) -> tuple[list[str], int, int]:
        if device not in made:
            root, heard, blocks = tmp_path_factory.mktemp("whole"), Heard(), [0]
            handle = torch.nn.modules.module.register_module_forward_pre_hook(lambda part, _: count(part, blocks))
            with pytest.MonkeyPatch.context() as patch:
                listen(patch, heard.events.append)
                assert main(words(root, "run", device, 2)) == 0
            handle.remove()
            made[device] = frames_of(root / "run"), len(heard.events), blocks[0]
        return made[device]

    return reference


def count(part: Any, counter: list[int]) -> None:
    counter[0] += type(part).__name__ == "WanTransformerBlock"


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def arm(patch: pytest.MonkeyPatch, kind: str, chance: random.Random, num_events: int, num_blocks: int) -> None:
    """Choose a point of the run at which this process kills itself."""
    counter = [0]
    if kind == LOOP:
        last = chance.randint(1, num_blocks)

        def look(part: Any, _: Any) -> None:
            count(part, counter)
            if counter[0] == last:
                die()

        torch.nn.modules.module.register_module_forward_pre_hook(look)
    elif kind == ARTIFACT:
        number, plain = chance.randint(1, 3), artifacts.save_file

        def save(tensors: Any, path: str, metadata: Any) -> None:
            plain(tensors, path, metadata)
            counter[0] += 1
            if counter[0] == number:
                content = Path(path).read_bytes()
                Path(path).write_bytes(content[: chance.randrange(len(content))])
                die()

        patch.setattr(artifacts, "save_file", save)
    else:
        last = chance.randint(1, num_events)

        def hear(_: Any) -> None:
            counter[0] += 1
            if counter[0] == last:
                die()

        listen(patch, hear)


def run_until_killed(command: list[str], arm_it: Callable[[], None]) -> None:
    child = os.fork()
    if child == 0:
        silent = os.open(os.devnull, os.O_WRONLY)
        os.dup2(silent, 1)
        os.dup2(silent, 2)
        arm_it()
        main(command)
        os._exit(0)
    _, status = os.waitpid(child, 0)
    assert os.WIFSIGNALED(status), "the child was to be killed"


def kept(folder: Path) -> dict[str, int | None]:
    """Newest step that is kept of each stage, None for its result."""
    found: dict[str, int | None] = {}
    for _, about in find_artifacts(folder):
        assert isinstance(about, About), "a file is whole or not there"
        step = about.step
        if about.stage not in found or step is None or (found[about.stage] or NUM_STEPS + 1) < step:
            found[about.stage] = step
    return found


@pytest.mark.parametrize(("seed", "kind", "device"), KILLS)
def test_a_killed_run_is_resumed_with_equal_frames_and_nothing_done_twice(
    seed: int, kind: str, device: str, references: Any, tmp_path: Path
) -> None:
    expected, num_events, num_blocks = references(device)
    chance = random.Random(seed)
    command, folder = words(tmp_path, "run", device, chance.choice((1, 2))), tmp_path / "run"
    with pytest.MonkeyPatch.context() as patch:
        run_until_killed(command, lambda: arm(patch, kind, chance, num_events, num_blocks))
    before, heard = kept(folder), Heard()
    with pytest.MonkeyPatch.context() as patch:
        listen(patch, heard.events.append)
        code = main(["run", "--quiet", "--resume", str(folder)])
    record = json.loads((folder / "record.json").read_text(encoding="utf-8"))
    if code == 2:  # killed when all was done
        assert record["requests"][0]["timings"]["total"] is not None
    assert frames_of(folder) == expected
    begun = [event.stage for event in heard.of(events.StageStarted)]
    steps = [event.step for event in heard.of(events.StepDone)]
    if "denoise" in before and before["denoise"] is None:
        assert not {"encode_prompt", "denoise"} & set(begun)
        assert not steps
    elif code == 0:
        assert steps == list(range(1 + (before.get("denoise") or 0), NUM_STEPS + 1))
        assert ("encode_prompt" in begun) == ("encode_prompt" not in before)
