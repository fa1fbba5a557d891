"""The example plugin: installed as a package, named by hand, refused in a file; and what its two parts do."""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from framework.cli import main
from framework.compose.arguments import Flags
from framework.compose.composer import compose
from framework.compose.plugins import announce_entry_points
from framework.errors import ConfigError
from framework.paths import ROOT
from framework.platforms.sim.world import World
from framework.spec import Placement, RunSpec

OFFLINE = ["--no-index", "--no-build-isolation", "--no-deps", "--disable-pip-version-check", "--no-compile", "--quiet"]
CONF = ROOT / "examples" / "plugin" / "conf"
CHOICE = ["--config-dir", str(CONF), "pipeline=digits_fade"]


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Install a copy of the plugin into a folder of its own, which is returned."""
    folder = tmp_path_factory.mktemp("plugin")
    shutil.copytree(CONF.parent, folder / "source", ignore=shutil.ignore_patterns("__pycache__"))
    pip = [sys.executable, "-m", "pip", "install", *OFFLINE, "--target", str(folder / "site"), str(folder / "source")]
    done = subprocess.run(pip, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return folder / "site"


@pytest.fixture
def installed(site: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The installed plugin among this process's packages: a process of its own would import diffusers once more."""
    monkeypatch.syspath_prepend(str(site))
    announce_entry_points.cache_clear()
    yield
    announce_entry_points.cache_clear()


def test_an_installed_plugin_runs_through_the_command_line(
    installed: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, one_thread: None
) -> None:
    monkeypatch.chdir(tmp_path)
    words = ["run", *CHOICE, "request.num_inference_steps=2", "device=sim", "seed=1", "output.name=out"]
    assert main(words) == 0
    folder = tmp_path / "outputs" / "out"
    assert json.loads((folder / "record.json").read_text(encoding="utf-8"))["status"] == "done"
    assert (folder / "video.mp4").is_file()
    log = (folder / "log.txt").read_text(encoding="utf-8")
    assert "loaded transformer: request-resident" in log
    assert "loaded vae: resident" in log
    assert "stage 4 of 5: fade" in log


def test_an_installed_plugin_is_listed_without_being_imported(site: Path, tmp_path: Path) -> None:
    script = (
        "import sys\nfrom framework.cli import main\nmain(['list', 'stages', 'strategies'])\n"
        "print('imported:', [name for name in sys.modules if name.partition('.')[0] in ('framework_fade', 'torch')])"
    )
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join((str(site), str(ROOT)))}
    command = [sys.executable, "-c", script]
    done = subprocess.run(command, capture_output=True, text=True, env=environment, cwd=tmp_path, check=False)
    assert {"fade", "request-resident", "imported: []"} <= {line.strip() for line in done.stdout.split("\n")}


def test_without_the_plugin_its_parts_are_refused_by_name(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["validate", *CHOICE]) == 2
    assert "unknown stage kind 'fade'" in capsys.readouterr().err


def test_the_command_line_names_a_plugin(plugin_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["validate", *CHOICE, "plugins=[framework_fade]"]) == 0
    assert "5 stages" in capsys.readouterr().out


def test_the_environment_names_a_plugin(
    plugin_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FRAMEWORK_PLUGINS", "json, framework_fade")
    assert main(["validate", *CHOICE]) == 0
    assert "5 stages" in capsys.readouterr().out


def test_a_plugin_that_cannot_be_imported_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["validate", "plugins=[no_such_plugin]"]) == 2
    line = "plugins: cannot import 'no_such_plugin': ModuleNotFoundError: No module named 'no_such_plugin'"
    assert capsys.readouterr().err == f"(from the command line: plugins=[no_such_plugin]): {line}\n"


def test_a_file_cannot_name_a_plugin(
    plugin_path: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    file = tmp_path / "my_conf" / "experiment" / "bad.yaml"
    file.parent.mkdir(parents=True)
    file.write_text("# @package _global_\nseed: 3\nplugins: [framework_fade]\n")
    assert main(["validate", "--config-dir", "my_conf", "experiment=bad"]) == 2
    assert "bad.yaml:3: plugins: a file cannot name code to import" in capsys.readouterr().err
    assert "framework_fade" not in sys.modules


def test_the_parts_and_the_entry_points_are_the_same(plugin_path: Path) -> None:
    """Both ways of loading may meet in one process, and neither may then call the other a duplicate."""
    import framework_fade

    from framework.registry import STAGES, STRATEGIES

    text = (plugin_path / "pyproject.toml").read_text(encoding="utf-8")
    for registry, name in ((STAGES, "fade"), (STRATEGIES, "request-resident")):
        loaded = registry.get(name)
        assert f'{name} = "{loaded.__module__}:{loaded.__qualname__}"' in text
        assert loaded.__module__.startswith(framework_fade.__name__)


def test_fade_darkens_the_edges_and_keeps_the_middle_and_the_input(plugin_path: Path) -> None:
    import torch
    from framework_fade.fade import Fade

    from framework.values import Frames

    white = torch.ones(2, 9, 1, 1, 3)
    values: dict[str, Any] = Fade().run(SimpleNamespace(values={"frames": Frames(white, fps=6)}))
    faded = values["frames"]
    assert faded.data[1, :, 0, 0, 0].tolist() == [0.25, 0.5, 0.75, 1, 1, 1, 0.75, 0.5, 0.25]
    assert faded.fps == 6
    assert torch.equal(white, torch.ones_like(white))


@pytest.mark.parametrize(("num_frames", "fps"), [(1, None), (1, 24), (2, 24), (5, None)])
def test_a_picture_or_a_very_short_clip_is_not_faded(plugin_path: Path, num_frames: int, fps: int | None) -> None:
    from framework_fade.fade import brightness_of

    assert brightness_of(num_frames, fps) == [1.0] * num_frames


def make_strategy() -> tuple[Any, Any]:
    """Return the strategy and its module: two tied weights, a float64 one and a buffer."""
    import torch
    from framework_fade.request_resident import RequestResident
    from torch import nn

    module = nn.Module()
    module.first, module.second = nn.Linear(4, 4, bias=False), nn.Linear(4, 4, bias=False)
    module.second.weight = module.first.weight
    module.kept = nn.Parameter(torch.ones(1, dtype=torch.float64))
    module.register_buffer("count", torch.zeros(1))
    placement = Placement(component="x", group=None, mode="request-resident")
    return RequestResident("x", module, placement, torch.device("sim", 0)), module


def test_weights_stay_for_the_request_and_the_host_ones_come_back(plugin_path: Path, sim: World) -> None:
    strategy, module = make_strategy()
    host = dict(module.named_parameters())
    strategy.prepare()
    strategy.finish_use()
    assert {parameter.device.type for parameter in module.parameters()} == {"sim"}
    assert module.first.weight is module.second.weight
    strategy.finish_request(preferred=False)
    assert all(after is host[name] for name, after in module.named_parameters())


def test_a_preferred_component_stays_and_is_not_copied_again(plugin_path: Path, sim: World) -> None:
    strategy, module = make_strategy()
    strategy.prefetch(beside_active=False)
    placed = module.first.weight
    strategy.finish_request(preferred=True)
    strategy.prepare()
    assert module.first.weight is placed


def test_a_use_in_another_dtype_starts_from_the_host_and_ends_with_the_use(plugin_path: Path, sim: World) -> None:
    import torch

    strategy, module = make_strategy()
    strategy.prepare()
    strategy.prepare(torch.bfloat16)
    assert (module.first.weight.dtype, module.kept.dtype) == (torch.bfloat16, torch.float64)
    strategy.finish_use()
    strategy.prepare()
    assert module.first.weight.dtype == torch.float32


def test_a_copy_that_fails_leaves_everything_on_the_host(
    plugin_path: Path, sim: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    import torch

    strategy, module = make_strategy()
    original = torch.Tensor.to

    def fail_at_the_last(tensor: Any, *words: Any, **options: Any) -> Any:
        if tensor.dtype == torch.float64:
            raise torch.OutOfMemoryError("full")
        return original(tensor, *words, **options)

    monkeypatch.setattr(torch.Tensor, "to", fail_at_the_last)
    with pytest.raises(torch.OutOfMemoryError):
        strategy.prepare()
    assert {parameter.device.type for parameter in module.parameters()} == {"cpu"}


def composed(*words: str) -> RunSpec:
    return compose(["pipeline=digits_fade", "plugins=framework_fade", *words], Flags(config_dir=(str(CONF),)))


def test_the_pipeline_of_the_plugin_places_both_transformers(plugin_path: Path) -> None:
    modes = {name: placement.mode for name, placement in composed().placements.items()}
    assert modes.pop("transformer") == modes.pop("transformer_2") == "request-resident"
    assert set(modes.values()) == {"resident"}


def test_without_the_renaming_the_stage_is_a_second_writer(plugin_path: Path) -> None:
    with pytest.raises(ConfigError, match="writes 'frames', which stage 'decode' writes too"):
        composed("~pipeline.stages.fade.outputs")


def frame_hash(folder: Path, mode: str) -> str:
    words = [*CHOICE, "plugins=framework_fade", f"component_residency.dit={mode}", "device=sim", "seed=1"]
    assert main(["run", *words, "request.num_inference_steps=2", f"output.root={folder}", f"output.name={mode}"]) == 0
    record = json.loads((folder / mode / "record.json").read_text(encoding="utf-8"))
    return str(record["requests"][0]["outputs"][0]["frames_sha256"])


def test_the_strategy_gives_the_frames_of_resident(plugin_path: Path, tmp_path: Path, one_thread: None) -> None:
    assert frame_hash(tmp_path, "request-resident") == frame_hash(tmp_path, "resident")
