"""The pages keep their word: every example runs, every command is understood, every page is short."""

import json
import re
from pathlib import Path

import page_reader
import pytest

from framework.cli import COMMANDS, main
from framework.paths import ROOT

DOCS = ROOT / "docs"
EXAMPLES = ("pipeline-yaml.md", "writing-a-stage.md", "writing-a-strategy.md")
PAGES = [ROOT / "README.md", *sorted(DOCS.glob("*.md")), ROOT / "examples" / "plugin" / "README.md"]
SHOWN = [(page, command) for page in PAGES for command in page_reader.all_commands(page)]
ANSWERS_WITHOUT_A_TRACE = ("validate", "explain", "list", "show")
OF_A_RUN = {"--from", "--resume"}  # followed by the folder of a run that the reader has


@pytest.fixture
def desk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder in which a reader tries things: the working folder, on the Python path."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    return tmp_path


@pytest.mark.parametrize("name", EXAMPLES)
def test_the_example_of_a_page_runs_as_it_stands(name: str, desk: Path, one_thread: None) -> None:
    assert page_reader.write_files(DOCS / name, desk)
    commands = page_reader.shell_commands(DOCS / name)
    assert "run" in {command.words[0] for command in commands}
    for command in commands:
        assert main(list(command.words)) == 0, command
    (record,) = desk.rglob("record.json")
    assert json.loads(record.read_text(encoding="utf-8"))["status"] == "done"


@pytest.mark.parametrize("name", ["fade", "request_resident"])
def test_a_page_shows_the_code_of_the_example_plugin(name: str, tmp_path: Path) -> None:
    pages = [DOCS / page for page in EXAMPLES]
    written = {path.name: path for page in pages for path in page_reader.write_files(page, tmp_path)}
    source = ROOT / "examples" / "plugin" / "framework_fade" / f"{name}.py"
    assert written[source.name].read_text(encoding="utf-8") == source.read_text(encoding="utf-8")


@pytest.mark.parametrize(("page", "command"), SHOWN, ids=[f"{p.name}: {' '.join(c.words)[:60]}" for p, c in SHOWN])
def test_every_command_shown_is_understood(
    page: Path, command: page_reader.Command, desk: Path, plugin_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`run` with --dry-run, what only answers as it stands, and the rest with --help."""
    if not page_reader.write_files(page, desk):
        monkeypatch.setenv("FRAMEWORK_PLUGINS", "framework_fade")
        monkeypatch.chdir(ROOT)
    for name, value in command.variables:
        monkeypatch.setenv(name, value)
    assert command.words[0] in COMMANDS
    extra = {"run": ["--dry-run"]} | {name: [] for name in ANSWERS_WITHOUT_A_TRACE}
    of_a_run = OF_A_RUN & set(command.words) or any("FOLDER/" in word for word in command.words)
    flags = ["--help"] if of_a_run else extra.get(command.words[0], ["--help"])
    assert main([*command.words, *flags]) == 0


def test_the_pages_on_writing_are_under_two_pages() -> None:
    for name in EXAMPLES:
        assert len((DOCS / name).read_text(encoding="utf-8").split()) < 900, name


def test_the_readme_is_short_and_shows_a_command_with_its_output() -> None:
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    assert len(text.split()) < 600
    assert "$ python -m framework run" in text
    assert "make demo" in text
    assert "make test" in text


def test_links_of_the_pages_lead_somewhere() -> None:
    for page in PAGES:
        for target in re.findall(r"\]\(([^)#]+)\)", page.read_text(encoding="utf-8")):
            assert (page.parent / target).exists(), f"{page.name}: {target}"


def test_the_yaml_of_the_readme_composes(desk: Path) -> None:
    (file,) = page_reader.write_files(ROOT / "README.md", desk)
    assert main(["validate", "--config-dir", "my_conf", f"{file.parent.name}={file.stem}"]) == 0


def test_a_page_is_read_as_a_reader_would(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(
        "`a/b.yaml`:\n\n```yaml\nx: 1\n```\n\nSay `framework list` or `a framework run`.\n\n"
        "```console\n$ A=1 python -m framework run seed=3 # why\nframework-like output\n```\n"
        "```\nframework show wan2\n```\n"
    )
    assert [path.read_text() for path in page_reader.write_files(page, tmp_path)] == ["x: 1\n"]
    assert page_reader.all_commands(page) == [
        page_reader.Command(("run", "seed=3"), (("A", "1"),)),
        page_reader.Command(("show", "wan2")),
        page_reader.Command(("list",)),
    ]
