"""`verify` as whole runs: every mode makes the reference's bytes, and a planted fault is found by name."""

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from framework.cli import main
from framework.registry import STRATEGIES

QUICK = ("seed=3", "prompt=a three", "request.num_inference_steps=2", "device=sim", "hardware=rtx_3060_12gb")
LIAR = "lying-offload"


def verify(root: Path, *words: str) -> int:
    return main(["verify", "--quiet", f"output.root={root}", "output.name=verified", *QUICK, *words])


def record_of(folder: Path) -> dict[str, Any]:
    record: dict[str, Any] = json.loads((folder / "record.json").read_text(encoding="utf-8"))
    return record


@pytest.fixture
def lying_strategy() -> Iterator[None]:
    """A mode that brings components whole, and one byte of the second expert's weights wrong."""
    from strategies.component_offload import ComponentOffload

    class Liar(ComponentOffload):
        def wait(self) -> None:
            super().wait()
            if self.component == "transformer_2":
                self._module.get_parameter("blocks.1.attn1.to_q.weight").data.view(-1)[7] += 1

        def finish_use(self) -> None:
            self._mover.drop()  # it does not tell that a weight changed

    before = dict(STRATEGIES._loaded), dict(STRATEGIES._shown)
    STRATEGIES.register(LIAR)(Liar)
    yield
    STRATEGIES._loaded, STRATEGIES._shown = before


def test_every_offload_mode_makes_the_bytes_of_the_reference_and_its_record_shows_what_moved(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], one_thread: None
) -> None:
    assert verify(tmp_path, "--modes", "all", "--json") == 0
    reference, *modes = json.loads(capsys.readouterr().out)
    assert reference["result"] == "reference"
    assert [one["run"] for one in modes] == ["component-offload", "layerwise-offload"]
    assert {one["result"] for one in modes} == {"equal"}
    assert record_of(tmp_path / "verified" / "reference")["requests"][0]["memory"]["moved_bytes"] == {}
    for mode in modes:
        record = record_of(tmp_path / "verified" / mode["run"])
        moved = record["requests"][0]["memory"]["moved_bytes"]
        assert moved.keys() == {"text_encoder", "transformer", "transformer_2", "vae"}
        assert all(ways["h2d"] > 0 for ways in moved.values())
        assert record["requests"][0]["outputs"][0]["frames_sha256"] == reference["frames_sha256"][0][0]


def test_a_strategy_that_alters_a_weight_is_found_with_stage_step_and_tensor(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], lying_strategy: None, one_thread: None
) -> None:
    assert verify(tmp_path, "--modes", LIAR) == 1
    lines = capsys.readouterr().out.splitlines()
    assert any(line.startswith(f"{LIAR} ") and " different " in line for line in lines)
    steps = record_of(tmp_path / "verified" / LIAR)["config"]["request"]["num_inference_steps"]
    (first,) = [line for line in lines if "differs first at" in line]
    assert "request 1, stage 'denoise', step " in first
    assert first.endswith(": latents")
    assert 1 < int(first.partition("step ")[2].partition(":")[0]) <= steps, "the second expert takes the later steps"
    assert f"{LIAR}: there differs weight 'blocks.1.attn1.to_q.weight' of component 'transformer_2'" in lines


def test_a_record_is_compared_with_a_new_run_and_with_what_it_kept(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], one_thread: None
) -> None:
    from safetensors.torch import load_file, save_file

    model = tmp_path / "model"
    shutil.copytree(Path("conf/models/digits").resolve(), model)
    common = [f"output.root={tmp_path}", *QUICK, f"pipeline.model.source={model}", "output.report=false"]
    assert main(["run", "--quiet", "output.name=then", *common]) == 0
    capsys.readouterr()
    place = [f"output.root={tmp_path}", "device=cpu", "--from", str(tmp_path / "then"), "--json", "--quiet"]
    assert main(["verify", *place]) == 0
    assert json.loads(capsys.readouterr().out)[0]["result"] == "equal"
    (file,) = (model / "transformer").glob("*.safetensors")
    weights = load_file(file)
    weights["blocks.1.attn1.to_q.weight"].view(-1)[7] += 1
    save_file(weights, file)
    assert main(["verify", *place]) == 1
    (verdict,) = json.loads(capsys.readouterr().out)
    assert verdict["result"] == "different"
    assert verdict["first"] == {"request": 0, "stage": "denoise", "step": None, "tensor": "latents.data"}


def test_a_comparison_that_would_prove_nothing_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert verify(tmp_path) == 2
    assert "residency: every component is resident" in capsys.readouterr().err
    assert verify(tmp_path, "--modes", "resident", "residency=low_vram") == 2
    assert "--modes: every component is resident" in capsys.readouterr().err
    assert verify(tmp_path, "--modes", "all", "device=cpu") == 2
    assert "add device=sim" in capsys.readouterr().err
    assert verify(tmp_path, "--modes", "layerwise") == 2
    assert "did you mean 'layerwise-offload'?" in capsys.readouterr().err
    assert not list(tmp_path.iterdir())
