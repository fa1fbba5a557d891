"""Quantised components from the command line: refused in one line, or run, told and recorded."""

import importlib.util
import json
from pathlib import Path
from typing import Any

import pytest
from gguf_builders import write_gguf

from framework.cli import main
from framework.paths import EMBEDDED_MODELS

STEPS = "request.num_inference_steps=1"
INT8 = "numerics.quantize.dit=torchao-int8"


def record(root: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(next(root.rglob("record.json")).read_text(encoding="utf-8"))
    return found


def frames(root: Path) -> str:
    found: str = record(root)["requests"][0]["outputs"][0]["frames_sha256"]
    return found


@pytest.mark.skipif(importlib.util.find_spec("torchao") is None, reason="needs the package torchao")
def test_a_quantised_run_is_told_recorded_and_alike_in_every_placement(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], one_thread: None
) -> None:
    seen = {}
    for name, words in {
        "full": ("device=cpu",),
        "int8": ("device=cpu", INT8),
        "streamed": ("device=sim", INT8, "component_residency.dit=layerwise-offload"),
    }.items():
        root = tmp_path / name
        assert main(["run", "seed=1", STEPS, f"output.root={root}", *words]) == 0
        seen[name] = frames(root)
    assert seen["int8"] == seen["streamed"] != seen["full"]
    log = next((tmp_path / "int8").rglob("log.txt")).read_text(encoding="utf-8")
    assert "transformer is torchao-int8" in log
    assert "changes the picture" in log
    assert record(tmp_path / "int8")["config"]["numerics"]["quantize"] == {"dit": "torchao-int8"}


@pytest.mark.slow  # what it loads is tried in every mode by `tests/loading/test_quantized_modes.py`
@pytest.mark.skipif(importlib.util.find_spec("gguf") is None, reason="needs the package gguf")
def test_a_gguf_expert_runs_beside_the_models_own(tmp_path: Path, one_thread: None) -> None:
    file = write_gguf(EMBEDDED_MODELS / "digits" / "transformer", tmp_path / "expert.gguf")
    source = f"pipeline.components.transformer.source={file}"
    seen = []
    for number, words in enumerate((("device=cpu",), ("device=sim", "component_residency.dit=layerwise-offload"))):
        root = tmp_path / str(number)
        assert main(["run", "seed=1", STEPS, source, f"output.root={root}", *words]) == 0
        seen.append(frames(root))
    assert seen[0] == seen[1]
    assert "transformer is gguf" in next(tmp_path.rglob("log.txt")).read_text(encoding="utf-8")


def test_a_method_this_device_cannot_do_is_one_line_before_anything_is_loaded(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["run", "seed=1", STEPS, f"output.root={tmp_path}", "numerics.quantize.transformer=bnb-nf4"]
    assert main([*words, "device=sim"]) == 2
    assert capsys.readouterr().err.splitlines()[0] == (
        "(from the command line: numerics.quantize.transformer=bnb-nf4): numerics.quantize.transformer: bnb-nf4 cannot "
        "be used on sim; it computes on cuda"
    )


def test_a_missing_package_is_one_line_with_the_way_to_get_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("framework.quantization._is_installed", lambda package: False)
    assert main(["run", "seed=1", STEPS, f"output.root={tmp_path}", INT8, "device=cpu"]) == 2
    assert "torchao-int8 needs the package 'torchao', which is not installed; pip install framework[torchao]" in (
        capsys.readouterr().err
    )


def test_explain_says_what_changes_the_picture(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["explain", "pipeline=wan2", INT8]) == 0
    assert "transformer_2 is torchao-int8" in capsys.readouterr().out
