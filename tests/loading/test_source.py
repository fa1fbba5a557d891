"""Where a model is found, and the one line for a model that is nowhere."""

from pathlib import Path

import pytest

from framework.errors import LoadError
from framework.loading.source import is_hub_name, locate_model
from framework.paths import EMBEDDED_MODELS
from framework.spec import ModelSpec


def message(source: str, hints: dict[str, object] | None = None, **options: str) -> str:
    with pytest.raises(LoadError) as caught:
        locate_model(ModelSpec(source=source, **options), hints or {})
    assert caught.value.exit_code == 2
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_an_embedded_model_and_a_folder_are_found() -> None:
    folder = EMBEDDED_MODELS / "digits"
    assert locate_model(ModelSpec(source="embedded:digits")) == folder
    assert locate_model(ModelSpec(source=str(folder))) == folder


@pytest.mark.parametrize("name", ["digit", "", ".", "..", "../models/digits"])
def test_an_unknown_embedded_name_is_refused(name: str) -> None:
    assert f"no embedded model is called '{name}'" in message(f"embedded:{name}")


def test_a_near_miss_gets_the_name() -> None:
    assert message("embedded:digitz").endswith("did you mean 'digits'?")


def test_a_hub_name_that_is_not_here_says_how_to_get_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path))
    assert message("Wan-AI/Wan2.2-T2V-A14B-Diffusers", {"download_gib": 117.5}, revision="main") == (
        "pipeline.model.source: 'Wan-AI/Wan2.2-T2V-A14B-Diffusers' is not on this machine, a download of 117.5 GiB; "
        "get it with `hf download Wan-AI/Wan2.2-T2V-A14B-Diffusers --revision main`, or give a local copy with "
        "pipeline.model.source=FOLDER"
    )
    assert "a download of" not in message("owner/name")


def test_a_snapshot_in_the_hubs_cache_is_used_without_a_connection(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path))
    snapshot = tmp_path / "models--owner--name" / "snapshots" / "0123456789abcdef"
    snapshot.mkdir(parents=True)
    (snapshot / "model_index.json").write_text("{}")
    refs = tmp_path / "models--owner--name" / "refs"
    refs.mkdir()
    (refs / "main").write_text("0123456789abcdef")
    assert locate_model(ModelSpec(source="owner/name")) == snapshot


def test_a_missing_folder_and_one_without_an_index_are_named(tmp_path: Path) -> None:
    assert message(str(tmp_path / "gone")).endswith("gone' does not exist")
    assert "holds no model_index.json" in message(str(tmp_path))


@pytest.mark.parametrize(
    ("source", "expected"),
    [("a/b", True), ("./b", False), ("/a/b", False), ("~/b", False), ("a/b/c", False), ("a", False), ("a/", False)],
)
def test_a_hub_name_is_owner_and_name(source: str, expected: bool) -> None:
    assert is_hub_name(source) is expected
