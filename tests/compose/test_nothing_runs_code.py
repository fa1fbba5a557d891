"""No file, record or override makes the program import, build or call anything; plugins by the user only: SE-01."""

import json
import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from framework.compose import plugins
from framework.compose.arguments import Flags
from framework.compose.composer import compose, compose_saved
from framework.errors import ConfigError
from framework.registry import STAGES, STRATEGIES

ATTACKS = {
    "tag_apply": "prompt: !!python/object/apply:pathlib.Path.touch [MARKER]\n",
    "tag_new": "prompt: !!python/object/new:os.system [touch MARKER]\n",
    "tag_module": "prompt: !!python/module:evil\n",
    "target": "request: {_target_: pathlib.Path.touch, _args_: [MARKER]}\n",
    "target_alias": "numerics: {quantize: {vae: {_target_: evil.touch}}}\n",
    "target_nested": "pipeline: {args: {x: [{_target_: os.system, _args_: ['touch MARKER']}]}}\n",
    "plugins": "plugins: [evil]\n",
    "callbacks": "hydra: {callbacks: {a: {_target_: evil.touch}}}\n",
    "logging": "defaults:\n  - override /hydra/job_logging: colorlog\n",
    "searchpath": "hydra: {searchpath: ['pkg://evil']}\n",
    "resolver": "prompt: a\nseed: ${evil:touch}\n",
    "duplicate": "seed: 1\nseed: 2\n",
}


@pytest.fixture
def marker(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A module `evil` that writes a marker file when it is imported."""
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "MARKER"
    (tmp_path / "evil.py").write_text(f"open({str(path)!r}, 'w').close()\ndef touch(*a): ...\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    yield path
    sys.modules.pop("evil", None)


@pytest.mark.parametrize("name", ATTACKS)
@pytest.mark.parametrize("group", ["experiment", "output"])
def test_a_file_that_names_code_is_refused_and_runs_nothing(name: str, group: str, marker: Path) -> None:
    folder = marker.parent / group
    folder.mkdir()
    head = "# @package _global_\n" if group == "experiment" else ""
    (folder / "bad.yaml").write_text(head + ATTACKS[name].replace("MARKER", str(marker)))
    with pytest.raises(ConfigError):
        compose([f"{group}=bad"], Flags(config_dir=(str(marker.parent),)))
    assert not marker.exists()


def test_a_root_config_of_the_users_cannot_name_code_either(marker: Path) -> None:
    (marker.parent / "mine.yaml").write_text("defaults: [config]\nhydra: {callbacks: {a: {_target_: evil.touch}}}\n")
    with pytest.raises(ConfigError, match=r"mine\.yaml:2: hydra: Hydra's own settings are refused in files"):
        compose([], Flags(config_dir=(str(marker.parent),), config_name="mine"))
    assert not marker.exists()


@pytest.mark.parametrize(
    "word",
    [
        "hydra.callbacks.a._target_=evil.touch",
        "+hydra.callbacks={a:{_target_:evil.touch}}",
        "hydra/launcher=evil",
        "++request._target_=evil.touch",
        "hydra.searchpath=[pkg://evil]",
        "seed=${evil:touch}",
        "~hydra",
    ],
)
def test_an_override_that_names_code_is_refused_and_runs_nothing(word: str, marker: Path) -> None:
    with pytest.raises(ConfigError):
        compose([word])
    assert not marker.exists()


def test_a_record_that_names_code_is_refused_and_runs_nothing(marker: Path) -> None:
    config = json.loads(json.dumps(compose([]).config))
    for change in ({"plugins": ["evil"]}, {"hydra": {"x": 1}}, {"loras": [{"source": "a", "_target_": "evil.touch"}]}):
        with pytest.raises(ConfigError):
            compose_saved({**config, **change}, [])
    assert not marker.exists()


def test_a_request_file_that_names_code_is_refused(marker: Path) -> None:
    (marker.parent / "r.jsonl").write_text('{"prompt": "a", "_target_": "evil.touch"}\n')
    with pytest.raises(ConfigError, match="unknown key '_target_'"):
        compose([f"requests=@{marker.parent / 'r.jsonl'}"])
    assert not marker.exists()


def test_plugins_are_imported_on_the_users_word_only(marker: Path) -> None:
    compose(["plugins=[evil]"])
    assert marker.exists()


def test_plugins_may_be_named_in_the_environment(marker: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FRAMEWORK_PLUGINS", "evil")
    compose([])
    assert marker.exists()


def test_a_plugin_that_fails_is_named_in_one_line(marker: Path) -> None:
    (marker.parent / "broken_plugin.py").write_text("raise RuntimeError('no card')\n")
    with pytest.raises(ConfigError, match="plugins: cannot import 'broken_plugin': RuntimeError: no card"):
        compose(["plugins=broken_plugin"])


@pytest.fixture
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A distribution with entry points of ours, and registries as they were afterwards."""
    info = tmp_path / "third-1.0.dist-info"
    info.mkdir()
    (info / "entry_points.txt").write_text(
        "[console_scripts]\nx = x:main\n\n[framework.stages]\nblur = third.stages:Blur\n\n"
        "[framework.strategies]\nsnapshot-offload = third.strategies:Snapshot\n"
    )
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    for registry in (STAGES, STRATEGIES):
        monkeypatch.setattr(registry, "_lazy", dict(registry._lazy))
        monkeypatch.setattr(registry, "_shown", dict(registry._shown))
    plugins.announce_entry_points.cache_clear()
    yield info
    plugins.announce_entry_points.cache_clear()


def test_entry_points_are_announced_without_an_import(installed: Path) -> None:
    assert {"blur", "snapshot-offload"} <= set(plugins.announce_entry_points())
    assert "blur" in STAGES
    assert "snapshot-offload" in STRATEGIES
    assert "third" not in sys.modules


def test_two_parts_of_one_name_are_refused_naming_both(installed: Path) -> None:
    (installed / "entry_points.txt").write_text("[framework.stages]\ndecode = third.stages:Decode\n")
    with pytest.raises(ConfigError, match=r"'decode' is registered by stages\.decode:Decode and third\.stages:Decode"):
        plugins.announce_entry_points()


def test_nothing_is_written_beside_the_files_that_are_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    compose(["pipeline=wan2", "residency=low_vram"])
    assert os.listdir(tmp_path) == []
