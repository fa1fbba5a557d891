"""What the front door promises: at once, without torch, safe on any console, in any folder, with honest exit codes."""

import json
import os
import shlex
import subprocess
import sys
import time
from pathlib import Path

import pytest

from framework import cli
from framework.cli import COMMANDS, main
from framework.errors import Interrupted, PlanError, StageError
from framework.paths import ROOT

HEAVY = ("torch", "diffusers", "transformers", "numpy", "accelerate", "safetensors")
QUICK = ("validate", "explain", "list", "show", "schema", "cp")


def run(*words: str, cwd: Path = ROOT, **environment: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [sys.executable, "-m", "framework", *words],
        cwd=cwd,
        env={**os.environ, "PYTHONPATH": str(ROOT), **environment},
        capture_output=True,
        text=True,
        encoding="utf-8",
        errors="replace",
        timeout=120,
        check=False,
    )


def test_nothing_that_answers_at_once_imports_a_heavy_package(tmp_path: Path) -> None:
    commands = [
        ["--help"],
        ["run", "--help"],
        ["validate", "pipeline=wan2", "residency=low_vram"],
        ["explain", "pipeline=wan2"],
        ["list"],
        ["show", "digits", "--graph"],
        ["schema", "--markdown"],
        ["cp", "pipeline/wan2", str(tmp_path)],
        ["completion", "query", "framework run residency="],
        ["validate", "--cfg", "job"],
    ]
    code = (
        "import json, sys; from framework.cli import main\n"
        f"for words in {commands!r}: assert main(words) == 0, words\n"
        f"print(json.dumps([name for name in {HEAVY!r} if name in sys.modules]), file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=False)
    assert json.loads(done.stderr.strip().splitlines()[-1]) == []


def test_help_and_list_import_neither_hydra_nor_yaml() -> None:
    code = (
        "import sys; from framework.cli import main\n"
        "main(['--help']); main(['list']); main(['completion', 'bash'])\n"
        "assert not {'hydra', 'omegaconf', 'yaml', 'jsonschema'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, check=True)


def test_importing_the_package_imports_nothing_else() -> None:
    code = "import sys; import framework; print([n for n in sys.modules if n.startswith('framework.')])"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_every_public_name_is_there() -> None:
    import framework

    assert all(getattr(framework, name) is not None for name in framework.__all__)
    with pytest.raises(AttributeError, match="no attribute 'composer'"):
        _ = framework.composer


def test_composing_and_checking_stay_quick_in_process() -> None:
    from framework.compose.composer import compose

    compose(["pipeline=wan2"])
    seconds = []
    for _ in range(3):
        started = time.process_time()
        compose(["pipeline=wan2", "residency=low_vram", "prompt=a cat, a dog"])
        seconds.append(time.process_time() - started)
    assert min(seconds) < 0.4


@pytest.mark.parametrize("command", QUICK)
def test_every_example_of_a_help_runs(command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import importlib

    module = importlib.import_module(f"framework.commands.{command}")
    assert len(module.EXAMPLES) == 3
    monkeypatch.chdir(tmp_path)
    for example in module.EXAMPLES:
        assert main(shlex.split(example)[1:]) == 0, example


def test_the_examples_of_the_first_help_are_commands_that_compose() -> None:
    for command in COMMANDS:
        assert f"  {command:<12}" in cli._help()


@pytest.mark.parametrize(
    ("error", "code"), [(PlanError("x"), 3), (StageError("x"), 4), (Interrupted("x"), 130), (KeyboardInterrupt(), 130)]
)
def test_an_error_ends_with_its_exit_code(
    error: BaseException, code: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail(words: list[str], flags: object) -> int:
        raise error

    monkeypatch.setattr("framework.commands.list.main", fail)
    assert main(["list"]) == code
    assert "Traceback" not in capsys.readouterr().err


def test_an_internal_error_is_one_line_and_debug_shows_the_traceback(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail(words: list[str], flags: object) -> int:
        raise RuntimeError("boom")

    monkeypatch.setattr("framework.commands.list.main", fail)
    assert main(["list"]) == 4
    assert capsys.readouterr().err == "internal error: RuntimeError: boom; --debug shows the traceback\n"
    assert main(["list", "--debug"]) == 4
    assert "Traceback" in capsys.readouterr().err


def test_a_narrow_console_gets_the_line_and_not_a_second_error() -> None:
    done = run("validate", "pipeline=猫", PYTHONIOENCODING="cp1252")
    assert done.returncode == 2
    assert done.stderr.startswith(r"(from the command line: pipeline=\u732b): pipeline: there is no pipeline called")


def test_a_users_folder_that_hides_ours_is_named(tmp_path: Path) -> None:
    for name in ("stages", "conf"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "__init__.py").touch()
    done = run("validate", cwd=tmp_path)
    assert done.returncode == 2
    assert done.stderr == (
        f"the folder '{tmp_path / 'stages'}' hides the program's own package 'stages'; "
        "run from another folder, or rename it\n"
    )
    (tmp_path / "stages" / "__init__.py").unlink()
    (tmp_path / "stages").rmdir()
    done = run("validate", cwd=tmp_path)
    assert done.returncode == 0
    assert done.stderr == f"note: '{tmp_path / 'conf'}' is not read; use --config-dir {tmp_path / 'conf'}\n"


def test_flags_may_stand_anywhere() -> None:
    for words in (["--json", "seed=1"], ["seed=1", "--json"], ["--json", "--", "seed=1"]):
        assert main(["validate", *words]) == 0


def test_a_copied_file_keeps_its_words_and_finds_its_schema(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["cp", "residency/low_vram", "mine/residency/small.yaml"]) == 0
    assert "framework run --config-dir mine residency=small" in capsys.readouterr().out
    text = (tmp_path / "mine" / "residency" / "small.yaml").read_text()
    assert f"$schema={(ROOT / 'conf' / 'schema' / 'residency.json').as_uri()}" in text
    assert main(["validate", "--config-dir", "mine", "residency=small"]) == 0
    assert main(["cp", "residency/low_vram", "mine/residency/small.yaml"]) == 2
    assert capsys.readouterr().err == "'mine/residency/small.yaml' exists; choose another name\n"


def test_the_search_path_has_the_users_folders_first(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    other = tmp_path / "other"
    other.mkdir()
    words = ["--info", "searchpath", "--config-dir", str(tmp_path), f"hydra.searchpath=[file://{other}]"]
    assert main(["validate", *words]) == 0
    assert capsys.readouterr().out.splitlines() == [str(tmp_path), str(other), str(ROOT / "conf")]


def test_a_folder_from_the_environment_is_searched(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "output").mkdir()
    (tmp_path / "output" / "mine.yaml").write_text("# Mine.\nroot: here\n")
    monkeypatch.setenv("FRAMEWORK_CONF", str(tmp_path))
    assert main(["validate", "output=mine"]) == 0


def test_the_composed_config_is_printed_as_yaml_that_composes_again(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["validate", "prompt=a ${x}, 猫", "seed=3", "--cfg", "job"]) == 0
    (tmp_path / "again.yaml").write_text(capsys.readouterr().out, encoding="utf-8")
    assert main(["validate", "--config-dir", str(tmp_path), "--config-name", "again", "--json"]) == 0


def test_the_doctor_looks_at_torch_in_a_child(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from framework.commands import doctor

    monkeypatch.setattr(doctor, "_PROBE", 'print(\'{"version": "9", "devices": ["cpu", "cuda:0 X"]}\')')
    assert main(["doctor", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["devices"] == ["cpu", "cuda:0 X"]
    monkeypatch.setattr(doctor, "_PROBE", "raise SystemExit('no driver')")
    assert main(["doctor"]) == 2
    assert "missing: a torch that can be imported: no driver" in capsys.readouterr().out
    monkeypatch.setattr(doctor, "_version", lambda name: None)
    assert main(["doctor", "--quiet"]) == 2
    assert "missing: the package torch; pip install torch" in capsys.readouterr().out


def test_the_key_reference_in_the_docs_is_current() -> None:
    from framework.commands.schema import markdown

    assert (ROOT / "docs" / "keys.md").read_text(encoding="utf-8") == markdown()


def cpu_seconds(*words: str) -> float:
    """The least processor time of two runs of the program, so that a busy machine says little; 0 words: bare Python."""
    import resource

    def spent() -> float:
        usage = resource.getrusage(resource.RUSAGE_CHILDREN)
        return usage.ru_utime + usage.ru_stime

    command = [sys.executable, "-m", "framework", *words] if words else [sys.executable, "-c", "pass"]
    seconds = []
    for _ in range(2):
        before = spent()
        subprocess.run(command, cwd=ROOT, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=True)
        seconds.append(spent() - before)
    return min(seconds)


def test_the_program_answers_at_once() -> None:
    """On two idle cores: 0.1 s over a bare interpreter, and 1.0 s; twice that here, since other work slows a core."""
    bare = cpu_seconds()
    assert cpu_seconds("--help") - bare < 0.2
    assert cpu_seconds("list") - bare < 0.2
    assert cpu_seconds("explain", "pipeline=wan2", "residency=low_vram") < 2.0
