"""One run on two simulated devices: components where the YAML has them, the same picture in every mode."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from diffusers.models.autoencoders.vae import DecoderOutput, DiagonalGaussianDistribution

from framework.cli import main
from framework.platforms.sim.world import current
from framework.runtime.elsewhere import Bridge, carry

WORDS = ["request.num_inference_steps=2", "seed=3", "--quiet"]
APART = [f"pipeline.components.{name}.device=sim:1" for name in ("transformer", "transformer_2")]
Run = Callable[..., dict[str, Any]]


@pytest.fixture
def run(tmp_path: Path) -> Run:
    """Run the embedded model with further words and return its record."""

    def make(*words: str) -> dict[str, Any]:
        assert main(["run", "device=sim", *WORDS, *words, f"output.root={tmp_path}"]) == 0
        (folder,) = (path for path in tmp_path.iterdir() if path.name[0].isdigit())
        record: dict[str, Any] = json.loads((folder / "record.json").read_text(encoding="utf-8"))
        folder.rename(tmp_path / f"seen-{folder.name}")
        return record

    return make


def frames(record: dict[str, Any]) -> list[str]:
    return [output["frames_sha256"] for request in record["requests"] for output in request["outputs"]]


@pytest.fixture(scope="module")
def on_one_device(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    folder = tmp_path_factory.mktemp("one")
    assert main(["run", "device=sim", *WORDS, f"output.root={folder}"]) == 0
    (path,) = folder.glob("*/record.json")
    return frames(json.loads(path.read_text(encoding="utf-8")))


@pytest.mark.parametrize("mode", ["resident", "component-offload", "layerwise-offload"])
def test_the_picture_is_that_of_one_device(mode: str, run: Run, on_one_device: list[str]) -> None:
    """Encoder and VAE are on one device, both transformers on the other."""
    record = run(f"component_residency.all={mode}", *APART)
    assert frames(record) == on_one_device
    assert {f"{name} computes on sim:1" for name in ("transformer", "transformer_2")} <= set(record["plan"]["notes"])
    held = {device.name: device.ledger.peak_bytes for device in current().devices}
    assert held["sim:1"] > 0
    if mode == "layerwise-offload":
        moved = record["requests"][0]["memory"]["moved_bytes"]
        assert {"text_encoder", "transformer", "transformer_2", "vae"} <= set(moved)


def test_weights_are_on_the_device_of_their_component(run: Run) -> None:
    """A transformer that is elsewhere takes nothing of the run's own device."""
    together = run()["requests"][0]["memory"]["device_peak_bytes"]
    apart = run(*APART)["requests"][0]["memory"]["device_peak_bytes"]
    assert together - apart > 7_000_000


def test_a_bound_of_device_memory_holds_for_each_device(
    tmp_path: Path, run: Run, capsys: pytest.CaptureFixture[str]
) -> None:
    """What would not fit on one device fits on two; what fits on neither is refused before it is read."""
    words = ["run", "device=sim", *WORDS, f"output.root={tmp_path / 'refused'}"]
    assert main([*words, "budget.device=9MB"]) == 3
    run("budget.device=9MB", *APART)
    capsys.readouterr()
    assert main([*words, "budget.device=5MB", *APART]) == 3
    assert "transformer" in capsys.readouterr().err


def test_a_device_that_is_not_there_is_named_with_its_key(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("FRAMEWORK_SIM_DEVICES", "0,1")
    words = ["run", "device=sim", *WORDS, f"output.root={tmp_path}"]
    assert main([*words, "pipeline.components.vae.device=sim:2"]) == 2
    assert "pipeline.components.vae.device: there is no sim:2; the last one is sim:1" in capsys.readouterr().err
    assert main([*words, "pipeline.components.vae.device=cuda:1"]) == 2
    assert "'cuda:1' is another kind of device than that of the run, 'sim'" in capsys.readouterr().err
    assert main([*words, "pipeline.components.vae.device=sim:1", "residency=auto"]) == 3
    assert "residency=auto plans one device, and there are vae on sim:1" in capsys.readouterr().err
    assert main(["plan", "device=sim", "pipeline.components.vae.device=sim:1"]) == 3
    assert "a plan knows one device, and there are vae on sim:1" in capsys.readouterr().err


def test_values_of_every_form_are_carried_and_nothing_else() -> None:
    here, there = torch.device("cpu"), torch.device("meta")
    value = torch.ones(2)
    found = carry({"a": [value, (value, 3)], "b": DecoderOutput(sample=value), "c": "text"}, here, there)
    assert found["a"][0].device == found["a"][1][0].device == found["b"].sample.device == there
    assert type(found["b"]) is DecoderOutput
    assert (found["a"][1][1], found["c"]) == (3, "text")
    given = DiagonalGaussianDistribution(torch.zeros(1, 2, 1, 1))
    moved = carry(given, here, there)
    assert moved.mean.device == there
    assert given.mean.device == here
    module = torch.nn.Linear(1, 1)
    assert carry(module, here, there) is module


def test_a_call_within_a_call_is_left_alone() -> None:
    bridge = Bridge(torch.device("cpu"), torch.device("meta"))
    inner: list[torch.Tensor] = []

    def outer(value: torch.Tensor) -> None:
        inner.append(bridge(lambda same: same, (value,), {}))

    bridge(outer, (torch.ones(1),), {})
    assert inner[0].device == torch.device("meta")
