"""Fetching from a hub that a small local server imitates: what is asked for, resume, disk, one line for an error."""

import hashlib
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hub_server import LARGE, Hub, connected, served

from framework.errors import LoadError
from framework.loading.hub import Fetch, check_space, fetch_files, plan_fetch
from framework.loading.needs import AdapterFiles, ComponentFiles, Need, needs_of
from framework.spec import Bound, LoraSpec, ModelSpec

BIG = hashlib.sha256(b"weights").digest() * (LARGE // 32 + 1000)


@pytest.fixture
def hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Hub]:
    with served() as found, connected(found, tmp_path / "cache", monkeypatch):
        found.add("me/big", {"style.safetensors": BIG})
        yield found


def need(path: str = "style.safetensors", repo: str = "me/big", revision: str | None = None) -> Need:
    return AdapterFiles(0, repo, revision, path)


def planned(wanted: Need | None = None) -> Fetch:
    found = plan_fetch(wanted or need())
    assert found is not None
    return found


def fetch(wanted: Need | None = None) -> Path:
    return fetch_files(planned(wanted), lambda here, total: None)


def line(wanted: Need) -> str:
    with pytest.raises(LoadError) as caught:
        fetch(wanted)
    assert caught.value.exit_code == 2
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_a_file_arrives_in_the_hubs_own_cache_and_is_not_asked_for_again(hub: Hub) -> None:
    from huggingface_hub import try_to_load_from_cache

    snapshot = fetch()
    assert (snapshot / "style.safetensors").read_bytes() == BIG
    assert try_to_load_from_cache("me/big", "style.safetensors") == str(snapshot / "style.safetensors")
    hub.requests.clear()
    assert plan_fetch(need()) is None
    assert hub.requests == []


def test_progress_ends_with_all_bytes(hub: Hub) -> None:
    seen: list[tuple[int, int]] = []
    fetch_files(planned(), lambda here, total: seen.append((here, total)))
    assert seen[0] == (0, len(BIG))
    assert seen[-1] == (len(BIG), len(BIG))
    assert [here for here, _ in seen] == sorted(here for here, _ in seen)


def test_a_transfer_that_breaks_off_goes_on_where_it_was(hub: Hub) -> None:
    hub.cut_at = 3 * 2**20
    assert (fetch() / "style.safetensors").read_bytes() == BIG
    ranges = [asked for method, path, asked in hub.requests if method == "GET" and "resolve" in path]
    assert ranges[0] == ""
    assert len(ranges) >= 3
    assert all(asked.startswith("bytes=") for asked in ranges[1:])


def interrupted_at(share: float) -> None:
    def stop(here: int, total: int) -> None:
        if here > share * total:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fetch_files(planned(), stop)


def test_an_interrupted_fetch_is_continued_by_the_next_process(hub: Hub) -> None:
    interrupted_at(0.5)
    again = planned()
    assert 0 < again.missing_bytes < 0.6 * len(BIG)
    hub.requests.clear()
    seen: list[int] = []
    snapshot = fetch_files(again, lambda here, total: seen.append(here))
    assert seen[0] == len(BIG) - again.missing_bytes
    assert seen[-1] == len(BIG)
    asked = next(asked for method, path, asked in hub.requests if method == "GET" and "resolve" in path)
    assert asked == f"bytes={len(BIG) - again.missing_bytes}-"
    assert (snapshot / "style.safetensors").read_bytes() == BIG
    assert not list((snapshot.parents[1] / "blobs").glob("*.incomplete"))


def test_a_server_without_ranges_starts_again_and_is_counted_once(hub: Hub) -> None:
    interrupted_at(0.5)
    hub.ranges = False
    seen: list[int] = []
    snapshot = fetch_files(planned(), lambda here, total: seen.append(here))
    assert seen[-1] == len(BIG)
    assert (snapshot / "style.safetensors").read_bytes() == BIG


def test_a_continued_file_that_was_damaged_is_found_and_deleted(hub: Hub) -> None:
    interrupted_at(0.5)
    partial = next(Path(cache_of()).rglob("*.incomplete"))
    partial.write_bytes(b"x" * partial.stat().st_size)
    assert "'me/big/style.safetensors' arrived damaged and was deleted; run it again" in line(need())
    assert (fetch() / "style.safetensors").read_bytes() == BIG


def cache_of() -> str:
    from huggingface_hub import constants

    return constants.HF_HUB_CACHE


def test_too_little_disk_is_told_before_anything_is_fetched(hub: Hub, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shutil.disk_usage", lambda path: SimpleNamespace(free=2**20))
    found = planned()
    with pytest.raises(LoadError, match=r"'me/big' needs 8\.0 MiB more and 1\.0 MiB are free .* HF_HUB_CACHE"):
        check_space([found])
    assert hub.fetched() == []


def test_a_download_beyond_the_runs_bound_of_the_disk_is_told_before_anything_is_fetched(hub: Hub) -> None:
    with pytest.raises(LoadError, match=r"'me/big' needs 8\.0 MiB more, and budget\.disk leaves 1\.0 MiB"):
        check_space([planned()], Bound("1MiB", 2**20))
    assert hub.fetched() == []
    assert check_space([planned()], Bound("9MiB", 9 * 2**20)) > 0


def test_offline_tries_no_connection(hub: Hub, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    assert "HF_HUB_OFFLINE is set, so nothing is fetched" in line(need())
    assert hub.requests == []


def test_a_gated_repository_is_told_with_the_way_in_and_without_the_token(
    hub: Hub, monkeypatch: pytest.MonkeyPatch
) -> None:
    hub.gated.add("me/big")
    expected = (
        f"loras[0].source: 'me/big' is gated: accept its terms at {hub.url}/me/big and log in with `hf auth login`"
    )
    assert line(need()) == expected
    monkeypatch.setenv("HF_TOKEN", "hf_" + "s3cret" * 5)
    assert line(need()) == expected
    assert any("s3cret" in token for token in hub.tokens)  # it went to the hub and nowhere else


def test_what_is_not_there_is_named(hub: Hub) -> None:
    assert "the hub has no 'me/gone', or it is private" in line(need(repo="me/gone"))
    assert "'me/big' has no revision 'v9'" in line(need(revision="v9"))
    assert "must hold one .safetensors file and has none" in line(need("other.safetensors"))
    assert "is no name of a repository" in line(need(repo="me/--big"))


@pytest.mark.parametrize(("status", "hint"), [(500, "try again later"), (403, "the token is refused")])
def test_an_answer_that_is_an_error_gives_its_status(hub: Hub, status: int, hint: str) -> None:
    hub.broken.add(status)
    message = line(need())
    assert f"the hub answered {status} for 'me/big'" in message
    assert hint in message


def test_a_hub_that_cannot_be_reached_is_one_line_without_an_address(hub: Hub, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("huggingface_hub.constants.ENDPOINT", "http://127.0.0.1:9")
    message = line(need())
    assert "the connection to the hub failed for 'me/big'" in message
    assert "127.0.0.1" not in message


def test_revisions_are_apart(hub: Hub) -> None:
    hub.add("me/big", {"style.safetensors": b"other"}, "v2")
    assert (fetch(need(revision="v2")) / "style.safetensors").read_bytes() == b"other"
    assert plan_fetch(need()) is not None
    assert plan_fetch(need(revision="v2")) is None


def test_content_that_is_here_under_another_revision_is_only_linked(hub: Hub) -> None:
    hub.add("me/big", {"style.safetensors": BIG}, "v2")
    fetch()
    hub.requests.clear()
    found = planned(need(revision="v2"))
    assert found.missing_bytes == 0
    fetch_files(found, lambda here, total: None)
    assert hub.fetched() == []
    assert plan_fetch(need(revision="v2")) is None


def test_one_adapter_of_several_has_to_be_named(hub: Hub) -> None:
    hub.add("me/loras", {"a.safetensors": b"a", "b.safetensors": b"b"})
    assert "must hold one .safetensors file and has a.safetensors, b.safetensors" in line(need("", "me/loras"))
    hub.add("me/loras", {"a.safetensors": b"a", "pytorch_lora_weights.safetensors": b"b"})
    assert [file.path for file in planned(need("", "me/loras")).files] == ["pytorch_lora_weights.safetensors"]


# Components of other repositories


def component(path: str, is_file: bool = False, **model: Any) -> ComponentFiles:
    return ComponentFiles("vae", "me/vae", None, path, ModelSpec(source="me/base", **model), is_file)


def test_a_component_is_a_folder_the_root_or_a_file_of_its_repository(hub: Hub) -> None:
    hub.add("me/vae", {"config.json": b"{}", "model.safetensors": b"1", "x/q.gguf": b"2", "notes.md": b"3"})
    assert [file.path for file in planned(component("")).files] == ["config.json", "model.safetensors"]
    assert [file.path for file in planned(component("x/q.gguf", True)).files] == ["x/q.gguf"]
    hub.add("me/vae", {"vae/config.json": b"{}", "vae/model.safetensors": b"1", "unet/model.safetensors": b"2"})
    assert [file.path for file in planned(component("")).files] == ["vae/config.json", "vae/model.safetensors"]
    assert "has no config.json in 'unet'" in line(component("unet"))


def test_weights_that_cannot_be_read_are_told_before_they_are_fetched(hub: Hub) -> None:
    hub.add("me/vae", {"config.json": b"{}", "pytorch_model.bin": b"1"})
    assert "'me/vae' has only pickles" in line(component(""))
    assert len(planned(component("", allow_pickle=True)).files) == 2
    hub.add("me/vae", {"config.json": b"{}", "model.fp16.safetensors": b"1"})
    assert "choose it with pipeline.model.variant" in line(component(""))
    hub.add("me/vae", {"config.json": b"{}", "model-00001-of-00002.safetensors": b"1"})
    assert "lacks '/model-00002-of-00002.safetensors'" in line(component(""))


def test_needs_are_only_what_is_not_local(tmp_path: Path) -> None:
    import spec_builders

    def folder(name: str) -> Path:
        return tmp_path

    spec = spec_builders.pipeline("wan21", folder, model=ModelSpec(source="me/wan", revision="v2"))
    local = tmp_path / "style.safetensors"
    local.touch()
    loras = [LoraSpec(local), LoraSpec(Path("me/loras@v2/a.safetensors"))]
    found = needs_of(spec, frozenset({"transformer"}), loras)
    assert [(one.repo, one.revision, one.key) for one in found] == [
        ("me/wan", "v2", "pipeline.model.source"),
        ("me/loras", "v2", "loras[1].source"),
    ]
    assert needs_of(spec_builders.pipeline("wan21", folder), frozenset()) == []
