"""The check for a GPU, rehearsed on the simulated device in a process that has no Hydra."""

import json
import os
import subprocess
import sys
from typing import Any

import pytest

from bench.tables import gpu
from framework.paths import ROOT

WITHOUT_HYDRA = """
import importlib.abc, runpy, sys

class Absent(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in ("hydra", "omegaconf", "jsonschema"):
            raise ModuleNotFoundError(name)

sys.meta_path.insert(0, Absent())
sys.argv = ["bench.gpu", *sys.argv[1:]]
runpy.run_module("bench.gpu", run_name="__main__")
"""


@pytest.fixture(scope="module")
def rehearsed() -> dict[str, Any]:
    command = [sys.executable, "-c", WITHOUT_HYDRA, "--device", "sim", "--quick", "--json"]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1"}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    answer: dict[str, Any] = json.loads(done.stdout.strip().splitlines()[-1])
    return answer


def test_every_part_is_answered_without_hydra(rehearsed: dict[str, Any]) -> None:
    assert sorted(rehearsed["parts"]) == list("abcdef")
    assert rehearsed["left_out"] == []
    assert rehearsed["simulated"]


def test_the_rehearsal_finds_equal_pictures_fast_copies_and_a_true_plan(rehearsed: dict[str, Any]) -> None:
    parts = rehearsed["parts"]
    assert parts["a"]["cases"] == 5
    assert parts["a"]["different"] == []
    assert parts["b"]["streamed"]["share"] > 0.95
    (case,) = parts["c"].values()
    assert all(row["same_picture"] for row in case["rows"])
    (stages,) = parts["d"].values()
    assert stages["denoise"]["expected_peak_bytes"] == stages["denoise"]["measured_peak_bytes"]
    assert parts["f"]["resident"] == parts["f"]["streamed, three uses"]


def test_the_page_of_a_rehearsal_says_that_no_figure_counts(rehearsed: dict[str, Any]) -> None:
    page = "\n".join(gpu(rehearsed))
    assert page.startswith("Measured on a simulated device: a rehearsal, no figure counts.")
    assert "| ours, auto |" in page


@pytest.mark.parametrize("script", ["gpu_check.sh", "gpu_wheels.sh"])
def test_a_script_without_its_folder_says_how_it_is_used(script: str) -> None:
    done = subprocess.run(["bash", str(ROOT / "bench" / script)], capture_output=True, text=True)
    assert done.returncode == 2
    assert f"bash bench/{script} WHEELS" in done.stderr


def test_large_models_have_the_real_layers(one_thread: None) -> None:
    import torch

    from bench.gpu_models import LARGE
    from bench.peers_models import use_tests

    use_tests()
    import tiny_pipelines

    layer_gb = {"flux1_dev": 0.68, "wan_14b": 0.70, "qwen_image": 0.68}
    for name, expected in layer_gb.items():
        model = LARGE[name]
        tiny = tiny_pipelines.build(model.tiny)
        with torch.device("meta"):
            denoiser = model.deepen(tiny)[model.denoiser]
        blocks = getattr(denoiser, "transformer_blocks", None) or denoiser.blocks
        size = sum(parameter.numel() for parameter in blocks[0].parameters()) * 2 / 1e9
        assert size == pytest.approx(expected, rel=0.02), name
