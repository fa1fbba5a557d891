"""Stored profiles: found again without torch, made again when anything they depend on changes or the file is broken."""

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import spec_builders

from framework.graph import build_graph
from framework.planning import profile as profiles
from framework.planning import profile_cache, profile_key, profile_run
from framework.planning.facts import CallCount, CallWork, Kernel, RunWork, StageWork, Work
from framework.planning.profile_cache import read_profile, write_profile
from framework.planning.profile_source import describe
from framework.spec import NumericsSpec, PipelineSpec

PASS = Work(matmul_flops=2.0, touched_bytes=6, launches=3, kernels=(Kernel("matmul", 2.0, 6, 1),), waits=1)
CALL = CallWork(
    component="transformer",
    entry_point="forward",
    layers=(("blocks", 0), ("blocks", 1)),
    layer_work=(PASS, PASS),
    after=PASS,
    activation_bytes=512,
    live_bytes=1024,
    reads_outside=("blocks.0.weight",),
)
WORK = RunWork(
    stages=(StageWork(stage="denoise", calls=(CallCount(call=CALL, count=4, steps=(1, 2)),), outside=PASS),),
    exact=False,
    notes=("a note",),
)


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("FRAMEWORK_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache" / profile_cache.FOLDER


@pytest.fixture
def passes(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The targets of every pass made; each finds `WORK`, which no text changes."""
    made: list[str] = []

    def stand_in(spec: Any, graph: Any, request: Any, described: Any, target: str) -> tuple[RunWork, bool]:
        made.append(target)
        return WORK, request.prompt == "texts matter"

    monkeypatch.setattr(profile_run, "profile_request", stand_in)
    return made


@pytest.fixture
def digits() -> PipelineSpec:
    return spec_builders.pipeline("digits", lambda name: Path(name))


def ask(spec: PipelineSpec, target: str = "sim", numerics: NumericsSpec | None = None, **changes: Any) -> RunWork:
    request = spec_builders.request(**changes)
    run_spec = spec_builders.run_spec(spec, request)
    if numerics is not None:
        run_spec = replace(run_spec, numerics=numerics)
    return profiles.work_of(run_spec, build_graph(spec), request, target=target)


def test_a_profile_comes_back_as_it_was() -> None:
    write_profile("key", WORK)
    assert read_profile("key") == WORK
    assert read_profile("another") is None


@pytest.mark.parametrize("damage", ["", "{", "[]", '{"schema": 1}'])
def test_a_broken_file_is_as_good_as_none(damage: str, cache: Path) -> None:
    write_profile("key", WORK)
    (cache / "key.json").write_text(damage)
    assert read_profile("key") is None


def test_a_changed_figure_is_noticed(cache: Path) -> None:
    write_profile("key", WORK)
    content = json.loads((cache / "key.json").read_text())
    content["work"]["calls"][0]["activation"] += 512
    (cache / "key.json").write_text(json.dumps(content))
    assert read_profile("key") is None


def test_a_cache_that_cannot_be_written_costs_time_only(cache: Path, digits: PipelineSpec, passes: list[str]) -> None:
    cache.parent.mkdir(parents=True)
    cache.write_text("a file where the folder should be")
    assert ask(digits) == ask(digits) == WORK
    assert len(passes) == 2


def test_one_pass_serves_all_texts_and_seeds(digits: PipelineSpec, passes: list[str]) -> None:
    assert ask(digits) == WORK
    assert ask(digits, prompt="two dogs", seeds=(9,)) == WORK
    assert passes == ["sim"]


def test_where_texts_matter_each_has_its_own(digits: PipelineSpec, passes: list[str]) -> None:
    for _ in range(2):
        ask(digits, prompt="texts matter")
    assert len(passes) == 1
    ask(digits, prompt="others")
    assert len(passes) == 2


@pytest.mark.parametrize(
    "change",
    [
        {"height": 64},
        {"num_inference_steps": 2},
        {"negative_prompt": None},
        {"negative_prompt": "a cat"},
        {"seeds": (1, 2), "num_outputs": 2},
        {"target": "cuda"},
        {"numerics": NumericsSpec(vae_tiling=True)},
    ],
)
def test_what_it_depends_on_makes_another(change: dict[str, Any], digits: PipelineSpec, passes: list[str]) -> None:
    ask(digits)
    ask(digits, **change)
    assert len(passes) == 2


def test_the_host_and_the_simulated_device_share_profiles(digits: PipelineSpec, passes: list[str]) -> None:
    ask(digits, "cpu")
    ask(digits, "sim")
    assert passes == ["sim"]


def test_another_version_of_a_library_makes_another(
    digits: PipelineSpec, passes: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    ask(digits)
    monkeypatch.setattr(profile_key, "_versions", lambda: {"torch": "99"})
    ask(digits)
    assert len(passes) == 2


def test_a_changed_config_makes_another(tmp_path: Path, passes: list[str], digits: PipelineSpec) -> None:
    request = spec_builders.request()
    run_spec, graph = spec_builders.run_spec(digits, request), build_graph(digits)
    described = describe(digits)
    configs = {**described.configs, "vae": {**described.configs["vae"], "z_dim": 99}}
    keys = [
        profile_key.profile_key(run_spec, graph, request, one, "sim", texts=False)
        for one in (described, replace(described, configs=configs))
    ]
    assert keys[0] != keys[1]


def test_reading_needs_no_torch(digits: PipelineSpec, passes: list[str]) -> None:
    ask(digits)
    script = (
        "import sys; from pathlib import Path; sys.path.insert(0, 'tests')\n"
        "import spec_builders as b; from framework.graph import build_graph\n"
        "from framework.planning.profile import work_of\n"
        "spec = b.pipeline('digits', lambda name: Path(name)); request = b.request()\n"
        "work = work_of(b.run_spec(spec, request), build_graph(spec), request, target='sim')\n"
        "print(work.notes, 'torch' in sys.modules, 'transformers' in sys.modules)"
    )
    root = Path(__file__).parents[2]
    done = subprocess.run([sys.executable, "-c", script], cwd=root, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "('a note',) False False"
