"""Where a model is found, and the one line for a model that is nowhere."""

from pathlib import Path

import pytest

from framework.errors import LoadError
from framework.loading.source import HubPath, cached_snapshot, is_hub_name, locate_model, parse_hub_path
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
        "pipeline.model.source: 'Wan-AI/Wan2.2-T2V-A14B-Diffusers' at revision 'main' is not on this machine, a "
        "download of 117.5 GiB; get it with `framework download` and the same keys, or give a local copy with "
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


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("a/b", HubPath("a/b")),
        ("a/b@v1.0", HubPath("a/b", "v1.0")),
        ("a/b/c/", HubPath("a/b", None, "c")),
        ("a/b@main/c/d.gguf", HubPath("a/b", "main", "c/d.gguf")),
        ("./a/b", None),
        ("/a/b/c", None),
        ("a/../b", None),
        ("a", None),
        ("folder/style.safetensors", None),
    ],
)
def test_a_place_on_the_hub_has_a_repository_a_revision_and_a_path(source: str, expected: HubPath | None) -> None:
    assert parse_hub_path(source) == expected


def test_a_hub_file_is_told_from_a_hub_folder() -> None:
    assert HubPath("a/b", None, "c/d.gguf").is_file
    assert not HubPath("a/b", None, "c/v1.5").is_file


def test_a_snapshot_is_found_by_branch_and_by_commit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path))
    snapshot = tmp_path / "models--a--b" / "snapshots" / "c0ffee"
    snapshot.mkdir(parents=True)
    (tmp_path / "models--a--b" / "refs").mkdir()
    (tmp_path / "models--a--b" / "refs" / "v2").write_text("c0ffee")
    assert cached_snapshot("a/b", "v2") == cached_snapshot("a/b", "c0ffee") == snapshot
    assert cached_snapshot("a/b") is None
