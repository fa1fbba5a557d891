"""The runner of benches: answers become pages, a crash is told, a missed goal is a result."""

import json
import subprocess
from pathlib import Path

import pytest

from bench import __main__ as runner
from bench.catalogue import BENCHES, Bench, command_of
from bench.results import Result, machine, read, write


def test_a_bench_answers_with_a_page_and_keeps_json_and_markdown(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert runner.main(["events", "--quick", "--out", str(tmp_path)]) == 0
    assert "heard by nobody" in capsys.readouterr().out
    kept = read(tmp_path / "events.json")
    assert kept.found["nobody"] > 0
    assert (tmp_path / "events.md").read_text(encoding="utf-8") == kept.markdown()


def test_a_crash_is_told_and_ends_with_1(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setitem(BENCHES, "events", Bench("Does it crash?", BENCHES["events"].table, quick=("--no-such",)))
    assert runner.main(["events", "--quick"]) == 1
    assert "events crashed" in capsys.readouterr().err


def test_a_missed_goal_is_a_result_and_no_crash() -> None:
    missed = subprocess.CompletedProcess(["bench"], 1, stdout='a note\n{"share": 2}\n', stderr="share above 1")
    assert runner._answer(missed) == {"share": 2}
    with pytest.raises(runner.Crash, match="exit code 1"):
        runner._answer(subprocess.CompletedProcess(["bench"], 1, stdout="", stderr="Traceback"))


def test_a_result_names_machine_and_versions_but_no_host_and_no_path() -> None:
    facts = machine()
    assert facts["versions"]["python"]
    assert facts["num_cpus"]
    assert set(facts) == {"processor", "num_cpus", "memory_bytes", "system", "versions", "commit"}
    assert "/" not in json.dumps({name: value for name, value in facts.items() if name != "processor"})


def test_a_quick_result_says_that_it_was_quick(tmp_path: Path) -> None:
    found = {"pairs": 1, "ratio": 1.0, "ours_s": 1.0, "plain_s": 1.0, "compose_s": 0.1}
    page = write(Result.of("overhead", found, 1.0, 0.0, quick=True), tmp_path)
    assert "`python -m bench.overhead --pairs 1`" in page.read_text(encoding="utf-8")


@pytest.mark.parametrize("name", BENCHES)
def test_every_bench_in_the_catalogue_is_a_module_with_the_command_that_is_shown(name: str) -> None:
    assert (Path(runner.__file__).parent / f"{name}.py").is_file()
    assert command_of(name).startswith(f"python -m bench.{name}")
