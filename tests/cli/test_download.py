"""`download`, and `run` with a model that is not here: from a local server that answers as the hub does."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from hub_server import Hub, connected, served

from framework.cli import main
from framework.paths import EMBEDDED_MODELS

SOURCE = "pipeline.model.source=me/digits"
DOWNLOAD = ["download", "pipeline=digits", SOURCE]
SECRET = "hf_" + "Zq7s3cretK" * 3


@pytest.fixture
def hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Hub]:
    """A hub with the embedded model, beside other formats of the same weights."""
    with served() as found, connected(found, tmp_path / "cache", monkeypatch):
        found.add_folder("me/digits", EMBEDDED_MODELS / "digits")
        content = found.repositories["me/digits"]["main"]
        content |= {
            "transformer/diffusion_pytorch_model.bin": b"pickle",
            "transformer/diffusion_pytorch_model.fp16.safetensors": b"half",
            "text_encoder/model.onnx": b"onnx",
            "digits.safetensors": b"all in one",
            "safety_checker/model.safetensors": b"unused",
        }
        yield found


def test_only_what_the_run_needs_is_fetched(hub: Hub, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(DOWNLOAD) == 0
    out, err = capsys.readouterr()
    snapshot = Path(out.strip())
    here = {file.relative_to(snapshot).as_posix() for file in snapshot.rglob("*") if file.is_file()}
    embedded = EMBEDDED_MODELS / "digits"
    expected = {file.relative_to(embedded).as_posix() for file in embedded.rglob("*") if file.is_file()}
    assert here == expected - {"README.md"}
    assert set(hub.fetched()) <= here
    assert len(hub.fetched()) == len(set(hub.fetched()))
    assert "fetching me/digits: 12 files, 4.6 MiB" in err
    assert " free" in err


def test_a_second_time_asks_nothing(hub: Hub, capsys: pytest.CaptureFixture[str]) -> None:
    main(DOWNLOAD)
    hub.requests.clear()
    assert main(DOWNLOAD) == 0
    assert hub.requests == []
    assert "everything is here" in capsys.readouterr().err


def test_an_unused_expert_is_not_fetched(hub: Hub, tmp_path: Path) -> None:
    one_expert = "pipeline.stages.denoise.component_uses=[{component: transformer}]"
    assert main([*DOWNLOAD, one_expert]) == 0
    assert not any(name.startswith("transformer_2/") for name in hub.fetched())


def test_the_variant_is_fetched_instead_of_the_full_weights(hub: Hub) -> None:
    assert main([*DOWNLOAD, "pipeline.model.variant=fp16"]) == 0
    fetched = [name for name in hub.fetched() if name.startswith("transformer/") and "model" in name]
    assert fetched == ["transformer/diffusion_pytorch_model.fp16.safetensors"]


def test_a_variant_is_looked_for_where_only_the_full_weights_are_here(hub: Hub) -> None:
    main(DOWNLOAD)
    hub.requests.clear()
    assert main([*DOWNLOAD, "pipeline.model.variant=fp16"]) == 0
    assert hub.fetched() == ["transformer/diffusion_pytorch_model.fp16.safetensors"]


def test_a_component_of_another_repository_takes_the_place_of_the_models_own(
    hub: Hub, capsys: pytest.CaptureFixture[str]
) -> None:
    hub.add("me/vae", {"config.json": b"{}", "diffusion_pytorch_model.safetensors": b"weights"})
    hub.add("me/files", {"deep/expert.gguf": b"GGUF"})
    others = [
        "pipeline.components.vae.source=me/vae",
        "pipeline.components.transformer.source=me/files/deep/expert.gguf",
    ]
    assert main([*DOWNLOAD, *others]) == 0
    fetched = hub.fetched()
    assert "vae/config.json" not in fetched
    snapshot = Path(capsys.readouterr().out.strip())
    # The file's config is the model's. Both experts have the same one: whichever is asked for first is fetched.
    assert (snapshot / "transformer/config.json").is_file()
    assert "transformer/diffusion_pytorch_model.safetensors" not in fetched
    assert {"deep/expert.gguf", "diffusion_pytorch_model.safetensors"} <= set(fetched)


def test_adapters_are_fetched_too(hub: Hub) -> None:
    hub.add("me/style", {"style.safetensors": b"adapter", "README.md": b"text"})
    assert main([*DOWNLOAD, "loras=[{source: me/style}]"]) == 0
    assert "style.safetensors" in hub.fetched()
    hub.requests.clear()
    assert main([*DOWNLOAD, "loras=[{source: me/style}]"]) == 0
    assert hub.requests == []


def test_a_pipeline_called_as_a_whole_is_fetched_before_its_components_are_known(
    hub: Hub, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["download", "pipeline=diffusers", SOURCE]) == 0
    assert "transformer_2/diffusion_pytorch_model.safetensors" in hub.fetched()
    assert "digits.safetensors" not in hub.fetched()


def test_an_explicit_revision_is_fetched_and_kept_apart(hub: Hub, capsys: pytest.CaptureFixture[str]) -> None:
    hub.add_folder("me/digits", EMBEDDED_MODELS / "digits", "v2")
    assert main([*DOWNLOAD, "pipeline.model.revision=v2"]) == 0
    out, err = capsys.readouterr()
    assert out.strip().endswith("b" * 40)
    assert "fetching me/digits@v2" in err


@pytest.mark.parametrize("command", ["download", "run"])
def test_gated_missing_and_offline_are_one_line_and_exit_2(
    hub: Hub, command: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    words = [command, "pipeline=digits", f"output.root={tmp_path / 'out'}"]
    assert main([*words, "pipeline.model.source=me/gone"]) == 2
    hub.gated.add("me/digits")
    assert main([*words, SOURCE]) == 2
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    hub.requests.clear()
    assert main([*words, SOURCE]) == 2
    assert hub.requests == []
    lines = capsys.readouterr().err.splitlines()
    key = "pipeline.model.source"
    places = [f"(from the command line: {key}=me/{name}): {key}: " for name in ("gone", "digits", "digits")]
    assert [line[: len(place)] for line, place in zip(lines, places, strict=True)] == places
    assert "the hub has no 'me/gone'" in lines[0]
    assert "'me/digits' is gated" in lines[1]
    assert "HF_HUB_OFFLINE is set" in lines[2]
    assert not (tmp_path / "out").exists()


def test_a_folder_is_nothing_to_fetch(hub: Hub, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["download", "pipeline=digits", f"pipeline.model.source={EMBEDDED_MODELS / 'digits'}"]) == 0
    assert main(["download", "pipeline=digits"]) == 0
    assert hub.requests == []


def test_quiet_prints_the_folder_alone(hub: Hub, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*DOWNLOAD, "--quiet"]) == 0
    out, err = capsys.readouterr()
    assert len(out.splitlines()) == 1
    assert err == ""


def test_a_run_fetches_and_runs_and_the_token_is_nowhere(
    hub: Hub, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_TOKEN", SECRET)
    root = tmp_path / "out"
    words = ["run", "pipeline=digits", SOURCE, "seed=1", "request.num_inference_steps=1", f"output.root={root}"]
    assert main([*words, "device=cpu"]) == 0
    out, err = capsys.readouterr()
    assert any(SECRET in token for token in hub.tokens)
    assert "fetching me/digits" in err
    written = [file for file in root.rglob("*") if file.suffix in (".json", ".log", ".txt", ".jsonl", ".yaml")]
    assert any(file.name == "record.json" for file in written)
    for text in (out, err, *(file.read_text(encoding="utf-8") for file in written)):
        assert SECRET not in text
    record = json.loads(next(root.rglob("record.json")).read_text(encoding="utf-8"))
    assert record["config"]["pipeline"]["model"]["source"] == "me/digits"
