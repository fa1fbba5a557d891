"""What a run takes over from one of other weights: what both have, in whatever mode, with the same frames."""

import shutil
from pathlib import Path

import pytest
from spec_builders import Recorder

from framework.compose.composer import compose
from framework.graph import build_graph
from framework.outputs.hashing import frames_sha256
from framework.paths import EMBEDDED_MODELS
from framework.platforms.sim.testing import sim as sim
from framework.platforms.sim.world import World, current
from framework.runtime.events import EventBus, Note
from framework.runtime.run import execute
from framework.runtime.warm import Warm

WORDS = ["device=sim", "seed=3", "request.num_inference_steps=2"]
TOLD = "its weights are those of the run before"


@pytest.fixture(scope="module")
def other(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The low-noise expert under another name, to be used as the high-noise one."""
    folder = tmp_path_factory.mktemp("other") / "transformer"
    shutil.copytree(EMBEDDED_MODELS / "digits" / "transformer_2", folder)
    return folder


def run(words: list[str], warm: Warm | None = None) -> tuple[str, list[str]]:
    """Return the hash of the frames and the components whose weights were taken over."""
    spec, recorder = compose([*WORDS, *words]), Recorder()
    result = execute(spec, build_graph(spec.pipeline), EventBus(recorder), keep=("frames",), warm=warm)
    notes = [note.text for note in recorder.of(Note)]
    taken = sorted(text.partition(": ")[0] for text in notes if text.endswith(TOLD))
    return frames_sha256(result.requests[0].values["frames"]), taken


@pytest.mark.parametrize("mode", ["resident", "component-offload", "layerwise-offload"])
def test_what_two_models_share_is_read_once(mode: str, other: Path, sim: World, one_thread: None) -> None:
    words = [f"component_residency.{group}={mode}" for group in ("dit", "text_encoder")]
    changed = [*words, f"pipeline.components.transformer.source={other}"]
    warm = Warm(moves=True)
    first, taken = run(words, warm)
    assert taken == []
    shared = ["text_encoder", "transformer_2", "vae"]
    second = run(changed, warm)
    assert second == (run(changed)[0], shared)
    assert run(words, warm) == (first, shared)
    assert first != second[0]
    warm.close()
    assert current().device(0).ledger.live_bytes == 0


@pytest.mark.parametrize("word", ["numerics.vae_tiling=true", "budget.host=4GiB", "hardware=rtx_3060_12gb"])
def test_beside_other_switches_bounds_or_cards_all_is_read_anew(word: str, sim: World, one_thread: None) -> None:
    warm = Warm(moves=True)
    run([], warm)
    assert run([word], warm)[1] == []
    warm.close()


def test_an_edited_component_is_read_anew(other: Path, sim: World, one_thread: None) -> None:
    warm = Warm(moves=True)
    run([], warm)
    assert warm.loaded is not None
    warm.loaded.store.mark_edited("vae", "an adapter")
    warm.loaded.store.replace("text_encoder", warm.loaded.store.module("text_encoder"))
    assert run([f"pipeline.components.transformer.source={other}"], warm)[1] == ["transformer_2"]
    warm.close()
