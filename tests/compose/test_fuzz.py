"""Random command lines and files: a `RunSpec` or a `ConfigError`, never anything else, and no file written."""

import os
import sys
from collections.abc import Callable
from functools import cache
from pathlib import Path

import pytest
from fuzz_cases import Case, make_case
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from framework.cli import main
from framework.compose.composer import compose, compose_saved
from framework.compose.overrides import read_overrides
from framework.compose.yaml_file import parse_document
from framework.errors import ConfigError

KEYS = st.sampled_from(
    [
        "seed",
        "request.height",
        "request",
        "pipeline",
        "pipeline.stages.decode.after",
        "pipeline.components.vae.layers",
        "pipeline.defaults",
        "residency",
        "residency.modes.vae",
        "component_residency",
        "layerwise.dit.prefetch",
        "layerwise",
        "dit_cpu_offload",
        "cpu_offload_components",
        "numerics.quantize",
        "output.root",
        "requests",
        "hydra.x",
        "plugins",
        "performance_mode",
        "budget.device",
    ]
)
VALUES = st.text(st.sampled_from("abe01.-,=[]{}:'\"${}@~+ \\néß"), max_size=12) | st.sampled_from(
    ["null", "true", "off", "1e3", "[1,2]", "{a: 1}", "{dit: resident}", "resident", "low_vram", "wan2", "nan", "inf"]
)
SAMPLE = 40


def lines_of(step: Callable[[], object]) -> list[str]:
    """The lines of a refusal, none when all is right; anything else fails the test."""
    try:
        step()
    except ConfigError as error:
        return [str(problem) for problem in error.problems]
    return []


@pytest.fixture(autouse=True)
def empty_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")  # a sweep (`-m`) asks the driver for its devices otherwise


@pytest.fixture(scope="session")
def touched() -> list[str]:
    """Every file or folder that the process opens for writing, makes, renames or removes, from here on."""
    found: list[str] = []

    def listen(event: str, arguments: tuple[object, ...]) -> None:
        writes = event == "open" and isinstance(arguments[2], int) and arguments[2] & (os.O_WRONLY | os.O_RDWR)
        if writes or event in ("os.mkdir", "os.rename", "os.remove", "os.rmdir", "os.link", "os.symlink"):
            found.append(os.path.abspath(os.fsdecode(arguments[0])) if isinstance(arguments[0], str | bytes) else "")
        elif event in ("subprocess.Popen", "os.system", "os.exec", "os.fork", "socket.connect"):
            found.append(event)

    sys.addaudithook(listen)
    return found


def refused_or_done(case: Case, folder: Path, touched: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    """Run one case; whatever it is, the program ends with 0 or 2, in lines, and writes nowhere else."""
    for name, text in case.files.items():
        (folder / "mine" / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / "mine" / name).write_bytes(text.encode("utf-8", "surrogatepass"))
    touched.clear()
    code = main(case.arguments)
    outside = [path for path in touched if not path.startswith(str(folder))]
    out, err = capsys.readouterr()
    shown = f"{case}\n{out}{err}"
    assert code in (0, 2), shown
    assert "Traceback" not in err, shown
    assert code == 0 or err.strip() or '"ok": false' in out, shown
    assert outside == [], shown


def test_a_sample_of_command_lines_and_files_composes_or_is_refused(
    tmp_path: Path, touched: list[str], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    for seed in range(SAMPLE):
        refused_or_done(make_case(seed), tmp_path, touched, capsys)


@pytest.mark.slow
def test_five_thousand_command_lines_and_files_compose_or_are_refused(
    tmp_path: Path, touched: list[str], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """`FUZZ_SHARD=2/10` runs the second tenth; a failing seed is in the message."""
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    shard, shards = map(int, os.environ.get("FUZZ_SHARD", "1/1").split("/"))
    for seed in range(shard - 1, 5000, shards):
        refused_or_done(make_case(seed), tmp_path, touched, capsys)


@settings(max_examples=400, deadline=None)
@given(st.lists(st.text(st.sampled_from("abseed=.+~'\"$[]{}(),:@\n é"), max_size=20), max_size=3))
def test_random_words_are_read_or_refused(words: list[str]) -> None:
    assert all(lines_of(lambda: read_overrides(words)))


LEAVES = st.none() | st.booleans() | st.integers(-3, 9) | st.floats() | VALUES
TREES = st.recursive(LEAVES, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(VALUES, inner, max_size=3))


@settings(max_examples=50, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(KEYS, TREES, st.booleans())
def test_a_random_record_composes_or_is_refused(key: str, tree: object, whole: bool) -> None:
    config = dict(base())
    head, _, name = key.partition(".")
    config[head] = {**(config.get(head) or {}), name: tree} if name and not whole else tree
    assert all(lines_of(lambda: compose_saved(config, [])))


@settings(max_examples=300, deadline=None)
@given(st.text(st.sampled_from("seed: \n-[]{}&*!|>'\"#%,request0x\t"), max_size=50))
def test_a_random_file_is_data_or_a_line(text: str) -> None:
    lines = lines_of(lambda: parse_document(text, Path("x.yaml"), "x.yaml"))
    assert all(line.startswith("x.yaml:") for line in lines)


@cache
def base() -> dict[str, object]:
    return dict(compose([]).config)
